// Parallel coordinates: a line per configuration; a range is chosen by dragging along an axis, or by its two fields.

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

class Parallel {
  constructor(root) {
    this.root = root;
    Object.assign(this, JSON.parse($("script", root).textContent));
    this.ranges = new Map();
    this.form = $("form", root);
    this.groups.forEach(([name, own], i) => this.form.elements.group.append(make("option", { value: String(i), textContent: `${name} (${own.length})` })));
    this.form.elements.group.addEventListener("input", () => this.draw());
    this.form.addEventListener("reset", () => { this.ranges.clear(); this.draw(); });
    this.form.addEventListener("submit", (e) => e.preventDefault());
    const details = $("details", root);
    details.addEventListener("toggle", () => {
      if (!details.open || details.children.length > 1) return;
      details.append(dataTable(["trial", ""], this.lines.map((l) => [l.label, l.text])));
    });
    this.draw();
  }

  shade(x) {
    if (x === null) return css("faint");
    const stops = RAMPS.ramp.map(([at, c]) => [at, [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16))]);
    const v = dark() ? 0.25 + 0.75 * x : 0.88 * (1 - x); // the best is the strongest against the page
    const k = Math.max(1, stops.findIndex(([at]) => at >= v)), [a, p] = stops[k - 1], [b, q] = stops[k];
    const t = (v - a) / (b - a);
    return `rgb(${p.map((c, i) => Math.round(c + t * (q[i] - c))).join(",")})`;
  }

  draw() {
    const chosen = (this.groups[Number(this.form.elements.group.value)] || ["", []])[1], n = this.axes.length;
    const step = 118, width = Math.max(680, 90 + step * (n - 1) + 90), top = 62, height = 260, x = (i) => 60 + (n > 1 ? i * (width - 130) / (n - 1) : 0);
    const y = (v) => top + (1 - v) * height;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${top + height + 24}`, role: "img", "aria-label": "Parallel coordinates: a line per configuration" });
    picture.style.minWidth = `${width * 0.8}px`;
    const order = [...chosen].sort((a, b) => (this.lines[a].shade ?? -1) - (this.lines[b].shade ?? -1));
    let kept = 0;
    for (const k of order) {
      const line = this.lines[k], parts = [];
      line.places.forEach((v, i) => { if (v !== null) parts.push(`${parts.length && line.places[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`); });
      const path = svg("path", { d: parts.join(""), stroke: this.shade(line.shade) });
      if (line.shade === null) path.setAttribute("stroke-dasharray", "3 3");
      const inside = [...this.ranges].every(([i, [low, high]]) => line.places[i] !== null && line.places[i] >= low && line.places[i] <= high);
      if (!inside) path.setAttribute("class", "out"); else kept += 1;
      path.append(svg("title", {}, `${line.label}\n${line.text}`));
      path.addEventListener("pointerenter", () => path.classList.add("hot"));
      path.addEventListener("pointerleave", () => path.classList.remove("hot"));
      picture.append(path);
    }
    this.axes.forEach((axis, i) => {
      picture.append(svg("line", { class: "axis", x1: x(i), x2: x(i), y1: top, y2: top + height }));
      const words = [];
      for (const piece of axis.name.split(/(?<=[._])/)) {
        if (words.length && words[words.length - 1].length + piece.length <= 16) words[words.length - 1] += piece; else words.push(piece);
      }
      words.slice(0, 3).forEach((word, k) => picture.append(svg("text", { x: x(i), y: top - 14 - 14 * (Math.min(3, words.length) - 1 - k), "text-anchor": "middle" }, word)));
      for (const [at, text] of axis.ticks) picture.append(svg("text", { class: "tick", x: x(i) + 6, y: y(at) + 4 }, text));
      const range = this.ranges.get(i);
      if (range) picture.append(svg("rect", { class: "brush", x: x(i) - 7, width: 14, y: y(range[1]), height: Math.max(1, y(range[0]) - y(range[1])) }));
      picture.append(this.grip(picture, i, x(i), top, height));
    });
    $(".canvas", this.root).replaceChildren(picture);
    $("output", this.form).textContent = this.ranges.size ? `${kept} of ${chosen.length} within the ranges` : `${chosen.length} ${chosen.length === 1 ? "trial" : "trials"}; drag along an axis to choose a range`;
  }

  // The invisible strip over an axis: drag with a pointer; with the keyboard, arrows move the range, Delete removes it.
  grip(picture, i, x, top, height) {
    const grip = svg("rect", { class: "grip", x: x - 14, width: 28, y: top - 6, height: height + 12, tabindex: 0, role: "slider", "aria-label": `Range of ${this.axes[i].name}`, "aria-valuemin": 0, "aria-valuemax": 100 });
    const now = this.ranges.get(i) || [0, 1];
    grip.setAttribute("aria-valuenow", Math.round(50 * (now[0] + now[1])));
    grip.setAttribute("aria-valuetext", `${Math.round(100 * now[0])} to ${Math.round(100 * now[1])} percent of the axis`);
    const place = (e) => {
      const box = picture.getBoundingClientRect(), v = (e.clientY - box.top) / box.height * picture.viewBox.baseVal.height;
      return Math.min(1, Math.max(0, 1 - (v - top) / height));
    };
    let from = null;
    grip.addEventListener("pointerdown", (e) => { from = place(e); grip.setPointerCapture(e.pointerId); });
    grip.addEventListener("pointerup", (e) => {
      if (from === null) return;
      const to = place(e), range = [Math.min(from, to), Math.max(from, to)];
      from = null;
      if (range[1] - range[0] < 0.02) this.ranges.delete(i); else this.ranges.set(i, range);
      this.draw();
    });
    grip.addEventListener("keydown", (e) => {
      const [low, high] = this.ranges.get(i) || [0, 1], s = 0.05;
      const to = { ArrowUp: [low + s, high], ArrowDown: [low, high - s] }[e.key];
      if (e.key === "Delete" || e.key === "Escape") this.ranges.delete(i);
      else if (to && to[1] - to[0] >= s) this.ranges.set(i, to);
      else return;
      e.preventDefault();
      this.draw();
      $$(".grip", this.root)[i].focus();
    });
    return grip;
  }
}

begin(document);
if ($('meta[name="envolve-live"]')) follow($('meta[name="envolve-live"]').content);
