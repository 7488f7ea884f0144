// The charts of rails: rates of the last two minutes, as SVG.
"use strict";

const kept = 120; // samples of a rail

// Series are samples of one rail of this node: times in seconds, rates in bytes per second.
class Series {
  constructor() { this.samples = []; }

  add(sample) {
    this.samples.push(sample);
    if (this.samples.length > kept) this.samples.shift();
  }

  get last() { return this.samples[this.samples.length - 1] || { out: 0, in: 0, up: true }; }

  peak() { return Math.max(0, ...this.samples.map((s) => Math.max(s.out, s.in))); }
}

const svg = (tag, attributes) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
};

// chart draws what a rail sent (area) and received (dashes), and when it was down; top is the
// scale, the same for all rails so that they compare.
function chart(series, top) {
  const width = kept - 1, height = 64;
  const s = series.samples, from = kept - s.length;
  const y = (v) => (height - 2 - (height - 6) * v / Math.max(top, 1)).toFixed(1);
  const path = (key) => s.map((p, i) => (i ? "L" : "M") + (from + i) + " " + y(p[key])).join("");
  const e = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none",
    role: "img", "aria-label": `sent ${rate(series.last.out)}, received ${rate(series.last.in)}` });
  e.append(svg("line", { class: "base", x1: 0, x2: width, y1: height - 1, y2: height - 1 }));
  s.forEach((p, i) => { if (!p.up) e.append(svg("rect", { class: "gap", x: from + i - 1, y: 0, width: 1.2, height })); });
  if (s.length > 1) {
    e.append(svg("path", { class: "out", d: `${path("out")}L${width} ${height - 1}L${from} ${height - 1}Z` }));
    e.append(svg("path", { class: "in", d: path("in") }));
  }
  return e;
}

// bar is a row of parts of 1; colors are by index.
function bar(parts) {
  const e = el("div", { class: "bar" });
  parts.forEach((part, i) => {
    if (part <= 0) return;
    const piece = el("i", { class: color(i), title: percent(part) });
    piece.style.width = 100 * part + "%";
    e.append(piece);
  });
  return e;
}

const color = (i) => "c" + i % 8;
