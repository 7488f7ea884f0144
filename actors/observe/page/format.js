// Numbers as people read them, and elements made of text: what comes from nodes is never HTML.
"use strict";

function si(value, unit) {
  const steps = ["", "k", "M", "G", "T"];
  let i = 0;
  while (value >= 1000 && i < steps.length - 1) { value /= 1000; i++; }
  const digits = value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(i === 0 && Number.isInteger(value) ? 0 : digits) + " " + steps[i] + unit;
}

const rate = (bytesPerSecond) => si(bytesPerSecond, "B/s");

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let i = 0;
  while (bytes >= 1024 && i < units.length - 1) { bytes /= 1024; i++; }
  return (Number.isInteger(bytes) ? bytes : bytes.toFixed(1)) + " " + units[i];
}

function duration(seconds) {
  if (!(seconds > 0)) return "–";
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
  for (const [unit, name] of units) {
    if (seconds >= unit) return (seconds / unit).toPrecision(3).replace(/\.?0+$/, (m) => m.includes(".") ? "" : m) + " " + name;
  }
  return "< 1 µs";
}

const percent = (part) => (100 * part).toFixed(part > 0 && part < 0.1 ? 1 : 0) + " %";
// cause is why a communicator broke, without its name, which stands beside it.
const cause = (c) => (c.Err || "").replace(/^communicator ".*?": communicator is broken/, "broken");
const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });

// el makes an element; children are elements or text.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== false) e.setAttribute(name, value);
  }
  for (const c of children.flat()) if (c !== undefined && c !== null && c !== "") e.append(c);
  return e;
}

const show = (id, ...children) => document.getElementById(id).replaceChildren(...children.flat().filter(Boolean));
const text = (id, value) => {
  const e = document.getElementById(id);
  if (e.textContent !== value) e.textContent = value;
};
