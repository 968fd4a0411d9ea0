"use strict";
// The look of the page, its figures, and its refreshing while a run goes on. Everything that came from a run is put in as
// text (textContent), never as HTML.

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

function make(tag, options = {}, children = []) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const figure = (x) =>
  x === null || x === undefined || Number.isNaN(x) ? "-"
    : Number.isInteger(x) || Math.abs(x) >= 10000 ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(4)));

// ------------------------------------------------------------------------------------------------------------- look

const remembered = { // files opened from a disk may have no storage
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* it is kept for this page alone */ } },
};
const dark = () => document.documentElement.dataset.look === "dark";

function setLook(look) {
  document.documentElement.dataset.look = look;
  $("#look").textContent = look === "dark" ? "Light" : "Dark";
  $("#look").setAttribute("aria-label", `Change to the ${look === "dark" ? "light" : "dark"} look`);
}

const NAMES = /^(c[0-6]|ink|muted|faint|grid)(?:\/([\d.]+))?$/;
const RAMPS = { // viridis; and blue to orange, both told apart with any colour vision
  ramp: [[0, "#440154"], [0.25, "#3b528b"], [0.5, "#21918c"], [0.75, "#5ec962"], [1, "#fde725"]],
  both: () => [[0, "#0072b2"], [0.5, dark() ? "#2b323a" : "#f4f4f4"], [1, "#d55e00"]],
};

function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }

function colour(text) {
  const found = NAMES.exec(text);
  if (!found) return text;
  const hex = css(found[1]);
  if (!found[2]) return hex;
  const full = hex.length === 4 ? "#" + [...hex.slice(1)].map((c) => c + c).join("") : hex;
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},${found[2]})`;
}

function painted(value, key = "") {
  if (Array.isArray(value)) return key === "color" && typeof value[0] === "string" ? value.map(colour) : key === "x" || key === "y" || key === "z" || key === "text" || key === "customdata" ? value : value.map((v) => painted(v));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, k)]));
  if (typeof value !== "string") return value;
  if (key === "colorscale") return value === "both" ? RAMPS.both() : RAMPS.ramp;
  return key.endsWith("color") ? colour(value) : value;
}

// ---------------------------------------------------------------------------------------------------------- figures

const touch = matchMedia("(pointer: coarse)").matches;
const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

// Titles of axes in two lines where there is little room.
function folded(title, room) {
  if (!title || !title.text || room > 480 || title.text.length < 34) return title;
  const at = title.text.lastIndexOf(" ", 30);
  return at < 0 ? title : { ...title, text: `${title.text.slice(0, at)}<br>${title.text.slice(at + 1)}` };
}

function layoutOf(own, room) {
  const axis = { gridcolor: css("grid"), zeroline: false, linecolor: css("muted"), tickcolor: css("muted"), automargin: true, ticks: "outside", ticklen: 4, showline: true, exponentformat: "power", minexponent: 5, separatethousands: true, title: { standoff: 10 } };
  const layout = painted(own);
  const size = { ...(layout.xaxis || {}) };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("ink") },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    hoverlabel: { font: { size: 12 }, align: "left", bgcolor: css("panel"), bordercolor: css("line"), font: { color: css("ink") } },
    dragmode: touch ? false : "zoom", ...layout,
    margin: { l: 58, r: 16, t: 34, b: 46, ...(layout.margin || {}) },
    xaxis: { ...axis, ...size, showgrid: false, title: { ...axis.title, ...folded(size.title, room) } },
    yaxis: { ...axis, ...(layout.yaxis || {}), showline: false, ticks: "", title: { ...axis.title, ...folded((layout.yaxis || {}).title, room) } },
  };
}

function plot(element, data, layout) {
  return Plotly.react(element, data.map((trace) => painted({ type: "scatter", ...trace })), layoutOf(layout, element.clientWidth), CONFIG);
}

const charts = new Map(); // element -> its data and layout
const drawn = new Set();

function drawChart(element) {
  const { data, layout } = charts.get(element);
  drawn.add(element);
  return plot(element, data, layout);
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); drawChart(entry.target); }
}, { rootMargin: "300px" });

function chartTable(data) {
  const rows = [];
  for (const trace of data) {
    if (trace.hoverinfo === "skip") continue;
    if (trace.type === "heatmap") {
      trace.z.forEach((row, j) => row.forEach((z, i) => rows.push([trace.name || "", trace.x[i], trace.y[j], z])));
    } else (trace.y || []).forEach((y, i) => rows.push([trace.name || "", (trace.x || [])[i], y, trace.text ? trace.text[i] : ""]));
  }
  return rows;
}

function dataTable(head, rows) {
  const MOST = 500;
  const cell = (x) => make("td", { textContent: typeof x === "number" ? figure(x) : x ?? "", className: typeof x === "number" ? "n" : "" });
  const body = make("tbody", {}, rows.slice(0, MOST).map((row) => make("tr", {}, row.map(cell))));
  const table = make("table", {}, [make("thead", {}, [make("tr", {}, head.map((h) => make("th", { textContent: h, scope: "col" })))]), body]);
  const box = make("div", { className: "scroll", tabIndex: 0 }, [table]);
  box.style.maxHeight = "20rem";
  if (rows.length > MOST) box.append(make("p", { className: "note", textContent: `The first ${MOST} of ${rows.length} rows.` }));
  return box;
}

function chartsIn(root) {
  for (const holder of $$(".chart", root)) {
    const element = $(".plot", holder);
    const spec = JSON.parse($("script", holder).textContent);
    charts.set(element, spec);
    seen.observe(element);
    const details = $("details.data", holder);
    details.addEventListener("toggle", () => {
      if (!details.open || details.children.length > 1) return;
      const title = (a) => (spec.layout[a] && spec.layout[a].title && spec.layout[a].title.text) || a[0];
      details.append(dataTable(["series", title("xaxis"), title("yaxis"), ""], chartTable(spec.data)));
    });
  }
}

function redraw() { for (const element of drawn) if (element.isConnected) drawChart(element); else drawn.delete(element); }

// ------------------------------------------------------------------------------------------------------------- code

const TOKENS = {
  python: [/#[^\n]*|("""|''')[\s\S]*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\b(?:def|return|import|from|as|if|else|elif|for|in|while|and|or|not|is|None|True|False|with|lambda|class|pass|raise|try|except|global|yield|assert|break|continue|del)\b|\b\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?\b/g],
  yaml: [/#[^\n]*|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|^[ \t-]*[\w.]+(?=:)|\b-?\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?\b/gm],
};

function coloured(text, language) {
  const rule = TOKENS[language];
  if (!rule || text.length > 60000) return [document.createTextNode(text)];
  const out = [];
  let at = 0;
  for (const match of text.matchAll(rule[0])) {
    const token = match[0];
    if (match.index > at) out.push(document.createTextNode(text.slice(at, match.index)));
    const kind = token[0] === "#" ? "remark" : /^["']/.test(token) ? "text-literal" : /^-?\d/.test(token) ? "num" : "word";
    out.push(make("span", { className: kind, textContent: token }));
    at = match.index + token.length;
  }
  out.push(document.createTextNode(text.slice(at)));
  return out;
}

function codeIn(root) {
  for (const pre of $$("pre.source", root)) pre.replaceChildren(...coloured(pre.textContent, pre.dataset.language));
}

// ------------------------------------------------------------------------------------------------------------- live

async function follow(address) {
  const state = $("#live");
  let tag = "", lost = 0;
  for (;;) {
    await new Promise((done) => setTimeout(done, document.hidden ? 5000 : 1500));
    try {
      const answer = await fetch(address, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      lost = 0;
      state.className = "on";
      if (answer.status === 304) { state.textContent = `Live, ${answer.headers.get("X-State") || ""}`; continue; }
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (tag) replace(fresh);
      tag = answer.headers.get("ETag") || "";
      state.textContent = `Live, ${answer.headers.get("X-State") || ""}`;
    } catch {
      lost += 1;
      if (lost > 1) { state.className = "off"; state.textContent = "The server of this page has ended. What is shown is the last state."; }
    }
  }
}

function replace(fresh) {
  const open = new Set($$("details[open] > summary").map((s) => s.textContent));
  const y = scrollY, kept = window.envolveLineage ? window.envolveLineage.map((l) => l.state()) : [];
  for (const element of drawn) Plotly.purge(element);
  drawn.clear(); charts.clear();
  $("#main").replaceChildren(...fresh.body.childNodes);
  begin($("#main"), kept);
  for (const summary of $$("details > summary")) if (open.has(summary.textContent)) summary.parentElement.open = true;
  scrollTo(0, y);
}

function begin(root, kept = []) {
  chartsIn(root);
  codeIn(root);
  window.envolveLineage = $$(".lineage", root).map((element, i) => new Lineage(element, kept[i]));
  window.envolveParallel = $$(".parallel", root).map((element) => new Parallel(element));
}

setLook(remembered.get("envolve-look") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
$("#look").addEventListener("click", () => {
  setLook(dark() ? "light" : "dark");
  remembered.set("envolve-look", document.documentElement.dataset.look);
  redraw();
  for (const view of [...window.envolveLineage, ...window.envolveParallel]) view.draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => {
  if (!remembered.get("envolve-look")) { setLook(e.matches ? "dark" : "light"); redraw(); }
});
addEventListener("beforeprint", () => { for (const element of charts.keys()) if (!drawn.has(element)) drawChart(element); });
