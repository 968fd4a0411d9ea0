// Candidates of a language model: a picture, a list with filters, and one candidate at a time.

const SYMBOLS = { initial: "circle", improve: "square", crossover: "diamond", repair: "triangle-up", edit: "cross", human: "star" };

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}

// Lines of b against a: [kind, text] with kind "same", "add" or "del". Texts beyond LIMIT lines are not compared.
function difference(a, b) {
  const LIMIT = 1500, x = a.split("\n"), y = b.split("\n");
  if (x.length > LIMIT || y.length > LIMIT) return null;
  const n = x.length, m = y.length, table = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--)
    table[i][j] = x[i] === y[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const out = [];
  let i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && x[i] === y[j]) { out.push(["same", x[i]]); i++; j++; }
    else if (j >= m || (i < n && table[i + 1][j] >= table[i][j + 1])) out.push(["del", x[i++]]);
    else out.push(["add", y[j++]]);
  }
  return out;
}

class Lineage {
  constructor(root, kept) {
    this.root = root;
    const { nodes, unit, best } = JSON.parse($("script.nodes", root).textContent);
    this.nodes = nodes; this.unit = unit; this.best = best;
    this.byId = new Map(nodes.map((n) => [n.id, n]));
    this.details = null;
    this.form = $("form", root); this.body = $("tbody", root); this.chart = $(".plot", root); this.panel = $(".detail", root);
    this.sort = { by: "score", down: true }; this.all = false;
    this.fill("state", "state"); this.fill("operator", "operator"); this.fill("island", "island", true); this.fill("model", "model", true);
    this.selected = kept && this.byId.has(kept.selected) ? kept.selected : best ?? (nodes.length ? nodes[0].id : null);
    if (kept) { for (const [name, value] of Object.entries(kept.form)) if (this.form.elements[name]) this.form.elements[name].value = value; this.sort = kept.sort; this.all = kept.all; }
    this.form.addEventListener("input", () => this.draw());
    this.form.addEventListener("submit", (e) => e.preventDefault());
    for (const button of $$("th button", root)) button.addEventListener("click", () => {
      const by = button.dataset.by;
      this.sort = { by, down: this.sort.by === by ? !this.sort.down : by === "score" };
      this.list();
    });
    $(".more", root).addEventListener("click", () => { this.all = true; this.list(); });
    this.body.addEventListener("keydown", (e) => {
      if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
      const rows = $$("button", this.body), at = rows.indexOf(document.activeElement);
      const next = rows[at + (e.key === "ArrowDown" ? 1 : -1)];
      if (next) { e.preventDefault(); next.focus(); next.click(); }
    });
    const wait = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) { wait.disconnect(); this.visible = true; this.draw(); }
    }, { rootMargin: "300px" });
    wait.observe(root);
    this.list();
  }

  state() {
    const form = Object.fromEntries(new FormData(this.form));
    return { selected: this.selected, form, sort: this.sort, all: this.all };
  }

  fill(name, key, hide = false) {
    const values = [...new Set(this.nodes.map((n) => n[key]))].filter((v) => v !== "" && v !== null);
    const select = this.form.elements[name];
    for (const value of values) {
      const count = this.nodes.filter((n) => n[key] === value).length;
      select.append(make("option", { value: String(value), textContent: `${value} (${count})` }));
    }
    if (hide && values.length < 2) select.parentElement.hidden = true;
  }

  shown() {
    const of = (name) => this.form.elements[name].value, text = of("text").toLowerCase();
    return this.nodes.filter((n) => ["state", "operator", "island", "model"].every((k) => !of(k) || String(n[k]) === of(k)) &&
      (!text || `${n.name} ${n.stage} ${n.why}`.toLowerCase().includes(text)));
  }

  ancestors(id) {
    const found = new Set(), todo = [id];
    while (todo.length) {
      const node = this.byId.get(todo.pop());
      if (node && !found.has(node.id)) { found.add(node.id); todo.push(...node.parents); }
    }
    return found;
  }

  draw() { this.list(); if (this.visible) { this.picture(); this.select(this.selected); } }

  places(tree) {
    const scores = this.nodes.filter((n) => n.score !== null).map((n) => n.score).sort((a, b) => a - b);
    const high = scores.length ? scores[scores.length - 1] : 1, middle = scores[Math.floor(scores.length / 2)] ?? 0;
    let low = scores.length ? scores[0] : 0;
    if (high > middle) low = Math.max(low, middle - 2 * (high - middle));
    const span = high - low || Math.abs(high) || 1, bottom = low - 0.12 * span, count = new Map(), seenAt = new Map();
    for (const n of this.nodes) count.set(n.iteration, (count.get(n.iteration) || 0) + 1);
    const at = new Map();
    for (const n of this.nodes) {
      const k = seenAt.get(n.iteration) || 0;
      seenAt.set(n.iteration, k + 1);
      const x = n.iteration + 1 + 0.7 * ((k + 0.5) / count.get(n.iteration) - 0.5);
      at.set(n.id, tree ? [n.iteration + 1, -n.row] : [x, n.score === null ? bottom : Math.max(n.score, low)]);
    }
    return { at, low, range: [bottom - 0.08 * span, high + 0.1 * span] };
  }

  picture() {
    const tree = this.form.elements.view.value === "tree";
    const shown = new Set(this.shown().map((n) => n.id)), { at, low, range } = this.places(tree);
    const line = { x: [], y: [] };
    for (const n of this.nodes) for (const p of tree ? n.parents.slice(0, 1) : n.parents) if (at.has(p) && shown.has(n.id) && (tree || n.score !== null)) {
      line.x.push(at.get(p)[0], at.get(n.id)[0], null); line.y.push(at.get(p)[1], at.get(n.id)[1], null);
    }
    const chain = this.ancestors(this.selected), bold = { x: [], y: [] };
    for (const id of chain) for (const p of this.byId.get(id).parents) if (at.has(p) && at.has(id)) {
      bold.x.push(at.get(p)[0], at.get(id)[0], null); bold.y.push(at.get(p)[1], at.get(id)[1], null);
    }
    const worse = (n) => !tree && n.score !== null && n.score < low;
    const islands = [...new Set(this.nodes.map((n) => n.island))].sort((a, b) => a - b);
    const group = (name, test, marker) => {
      const own = this.nodes.filter((n) => shown.has(n.id) && test(n));
      return {
        name, mode: "markers", x: own.map((n) => at.get(n.id)[0]), y: own.map((n) => at.get(n.id)[1]), customdata: own.map((n) => n.id),
        text: own.map((n) => `${n.name}, ${n.operator}<br>${n.score === null ? n.stage || n.state : `${figure(n.score)} ${this.safe(this.unit)}`}`),
        hovertemplate: "%{text}<extra></extra>", marker: { size: 9, ...marker(own) }, showlegend: own.length > 0,
      };
    };
    const data = [
      { ...line, mode: "lines", line: { color: "faint", width: 1 }, hoverinfo: "skip", showlegend: false },
      { ...bold, mode: "lines", line: { color: "ink", width: 2 }, hoverinfo: "skip", name: "ancestors", showlegend: bold.x.length > 0 },
    ];
    for (const operator of Object.keys(SYMBOLS).filter((o) => this.nodes.some((n) => n.operator === o)))
      data.push(group(operator, (n) => n.operator === operator && n.score !== null && !worse(n), (own) => ({
        symbol: SYMBOLS[operator], color: own.map((n) => (operator === "human" ? "ink" : `c${islands.indexOf(n.island) % 7}`)), size: operator === "human" ? 13 : this.nodes.length > 200 ? 7 : 10 })));
    data.push(group("worse than shown", worse, () => ({ symbol: "triangle-down", color: "muted" })));
    data.push(group("rejected", (n) => n.state === "rejected", () => ({ symbol: "line-ns-open", color: "muted", line: { width: 1.5, color: "muted" } })));
    data.push(group("failed in training", (n) => n.state === "failed", () => ({ symbol: "x-thin-open", color: "c1", line: { width: 1.5, color: "c1" } })));
    const now = at.get(this.selected);
    if (now) data.push({ x: [now[0]], y: [now[1]], mode: "markers", hoverinfo: "skip", showlegend: false, marker: { size: 20, color: "rgba(0,0,0,0)", line: { color: "ink", width: 2 } } });
    const human = this.nodes.find((n) => n.operator === "human" && n.score !== null);
    const layout = {
      xaxis: { title: { text: "iteration" }, dtick: this.nodes.some((n) => n.iteration > 20) ? undefined : 1 },
      yaxis: tree ? { visible: false } : { title: { text: `score, ${this.safe(this.unit)}` }, range },
      shapes: human && !tree ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: human.score, y1: human.score, line: { color: "muted", width: 1.5, dash: "dash" }, name: "human's score", showlegend: true }] : [],
      uirevision: tree ? "tree" : "score",
    };
    plot(this.chart, data, layout);
    if (!this.listening) {
      this.listening = true;
      this.chart.on("plotly_click", (e) => { const id = e.points[0].customdata; if (id !== undefined) this.choose(id); });
    }
  }

  safe(text) { return String(text).replace(/[<>&]/g, (c) => ({ "<": "&lt;", ">": "&gt;", "&": "&amp;" }[c])); }

  list() {
    const MOST = 100, { by, down } = this.sort, shown = this.shown();
    const value = (n) => (n[by] === null ? (down ? -Infinity : Infinity) : n[by]);
    shown.sort((a, b) => (down ? value(b) - value(a) : value(a) - value(b)) || a.id - b.id);
    const rows = this.all ? shown : shown.slice(0, MOST);
    this.body.replaceChildren(...rows.map((n) => {
      const button = make("button", { type: "button", textContent: n.name });
      button.addEventListener("click", () => this.choose(n.id));
      const row = make("tr", {}, [make("td", {}, [button]),
        make("td", { textContent: n.score === null ? n.stage || n.state : figure(n.score), className: n.score === null ? "" : "n" }),
        make("td", { textContent: n.low === null ? "" : `${figure(n.low)}, ${figure(n.high)}` }),
        make("td", { textContent: n.operator + (n.tuned ? ", tuned" : "") }), make("td", { textContent: String(n.iteration + 1), className: "n" })]);
      row.dataset.id = n.id;
      if (n.id === this.selected) row.setAttribute("aria-current", "true");
      return row;
    }));
    for (const button of $$("th button", this.root)) {
      if (button.dataset.by === by) button.setAttribute("aria-sort", down ? "descending" : "ascending");
      else button.removeAttribute("aria-sort");
    }
    const more = $(".more", this.root);
    more.hidden = rows.length === shown.length;
    more.textContent = `Show all ${shown.length}`;
    $("output", this.form).textContent = `${shown.length} of ${this.nodes.length} candidates`;
  }

  choose(id) {
    this.selected = id;
    for (const row of $$("tr[data-id]", this.body)) {
      if (Number(row.dataset.id) === id) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
    }
    if (this.visible) this.picture();
    this.select(id);
  }

  async select(id) {
    if (id === null) return;
    if (!this.details) this.details = await unpacked($("script.packed", this.root).textContent);
    if (id !== this.selected) return;
    const n = this.byId.get(id), more = this.details[id] || {}, parents = n.parents.filter((p) => this.byId.has(p));
    const out = [make("h3", { textContent: `${n.name}${id === this.best ? ", the best" : ""}` })];
    const facts = make("dl");
    const fact = (name, value) => { if (value) facts.append(make("dt", { textContent: name }), make("dd", {}, Array.isArray(value) ? value : [value])); };
    const links = parents.map((p) => { const b = make("button", { type: "button", textContent: this.byId.get(p).name }); b.addEventListener("click", () => this.choose(p)); return b; });
    fact("score", n.score === null ? "" : `${figure(n.score)}${n.low === null ? "" : ` [${figure(n.low)}, ${figure(n.high)}]`} ${this.unit}`);
    fact("written as", n.operator + (n.tuned ? ", numbers tuned" : ""));
    fact("parents", links.length ? [make("span", { className: "choices" }, links)] : "");
    fact("iteration", String(n.iteration + 1));
    fact("model", n.model);
    fact("training", n.steps ? `${figure(n.steps)} environment steps` : "");
    fact("call", n.tokens === null ? "" : `${figure(n.tokens)} tokens${n.usd === null ? "" : `, ${n.usd.toFixed(4)} USD`}`);
    out.push(facts);
    if (n.why) out.push(make("h4", { textContent: n.stage ? `Refused: ${n.stage}` : "Failed in training" }), make("p", { className: "why", textContent: n.why }));
    for (const note of more.notes || []) out.push(make("p", { className: "note", textContent: note }));
    if (more.film) {
      const { uri, video, caption, why } = more.film, look = { src: uri };
      const shown = !uri ? make("p", { className: "warn", textContent: why })
        : video ? make("video", { ...look, autoplay: true, loop: true, muted: true, playsInline: true, controls: true })
        : make("img", { ...look, alt: caption });
      if (video) shown.setAttribute("aria-label", caption);
      out.push(make("h4", { textContent: "Film" }), make("figure", { className: "film" }, [shown, make("figcaption", { textContent: caption })]));
    }
    const curves = Object.entries(more.curves || {});
    if (curves.some(([, v]) => v.length)) {
      out.push(make("h4", { textContent: "True score; reward and its components, per step of training" }));
      const box = make("div", { className: "plot", role: "img", "aria-label": "True score, reward and its components during training" });
      box.style.height = `${curves.length > 1 ? 320 : 200}px`;
      out.push(box);
      requestAnimationFrame(() => this.curves(box, curves));
    }
    if (more.code) {
      const pre = make("pre", { className: "source", tabIndex: 0 });
      const show = (parent) => {
        for (const b of $$("button", choices)) b.setAttribute("aria-pressed", String(b.dataset.parent === String(parent)));
        const rows = parent === "" ? null : difference((this.details[parent] || {}).code || "", more.code);
        if (!rows) { pre.replaceChildren(...coloured(more.code, "python")); return; }
        pre.replaceChildren(...rows.map(([kind, text]) => make("span", { className: kind, textContent: `${{ same: " ", add: "+", del: "-" }[kind]} ${text}` })));
      };
      const choices = make("div", { className: "choices", role: "group", "aria-label": "Code" },
        [["", "Code"], ...parents.map((p) => [p, `Changes from ${this.byId.get(p).name}`])].map(([p, text]) => {
          const b = make("button", { type: "button", textContent: text });
          b.dataset.parent = p;
          b.addEventListener("click", () => show(p));
          return b;
        }));
      out.push(make("h4", { textContent: "Code" }), choices, pre);
      show("");
    }
    if (more.tuned) out.push(make("h4", { textContent: "Numbers after tuning" }), dataTable(["name", "value"], Object.entries(more.tuned)));
    if (more.reply && more.reply !== more.code) out.push(make("details", {}, [make("summary", { textContent: "The model's reply" }), make("pre", { textContent: more.reply, tabIndex: 0 })]));
    this.panel.replaceChildren(...out);
  }

  curves(box, curves) {
    const two = curves.length > 1, colours = ["c1", "c2", "c3", "c5", "c4", "c6"];
    const data = curves.map(([name, y], i) => ({
      x: y.map((_, k) => k + 1), y, name: name.length > 24 ? name.slice(0, 22) + "…" : name, mode: "lines", yaxis: name === "score" || !two ? "y" : "y2",
      line: { width: name === "score" ? 2.5 : 1.5, color: name === "score" ? "c0" : colours[(i - 1 + colours.length) % colours.length], dash: name === "reward" ? "dot" : "solid" },
    })).map((t) => ({ ...t, name: this.safe(t.name) }));
    plot(box, data, {
      xaxis: { title: { text: "iteration of the learner" }, anchor: two ? "y2" : "y" },
      yaxis: { title: { text: "score" }, domain: two ? [0.58, 1] : [0, 1] },
      ...(two ? { yaxis2: { title: { text: "reward" }, domain: [0, 0.44], gridcolor: css("grid"), zeroline: false, automargin: true } } : {}),
      margin: { t: 40 },
    });
  }
}
