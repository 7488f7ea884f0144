// The page: takes frames, and draws what they say. It asks for nothing but /api/live.
"use strict";

const window10 = 10; // seconds over which operations are counted
const rails = new Map();   // by name: Series
const before = new Map();  // by node and rail: the last counters
let history = [];          // of this node's counts: the last 10 s
let colors = [];           // names of rails by color
let lastFrame = 0;
let silentAfter = 4;       // seconds without an answer

function railColor(name) {
  let i = colors.indexOf(name);
  if (i < 0) i = colors.push(name) - 1;
  return color(i);
}

// perSecond is the rate of a counter since it was seen last. One that decreased has begun anew. A node
// that has not answered since keeps its rate; times are exact to a millisecond.
function perSecond(key, value, now) {
  const old = before.get(key);
  if (old && now - old.now < 0.01) return old.rate;
  const r = old && value >= old.value ? (value - old.value) / (now - old.now) : 0;
  before.set(key, { value, now, rate: r });
  return r;
}

function draw(frame) {
  const self = frame.Self, now = Date.parse(self.Time) / 1000;
  self.Rails = self.Rails || [];
  silentAfter = frame.SilentAfter;
  frame.Others = frame.Others || [];
  const nodes = [asNeighbour(self), ...frame.Others].sort((a, b) => a.Node.localeCompare(b.Node, [], { numeric: true }));
  for (const n of nodes) measure(n, now - Math.max(n.Silent, 0));
  prune(nodes);
  text("where", `${self.Cluster} · ${self.Node}`);
  document.title = `${self.Node} · polyrail`;
  drawVerdict(self, nodes);
  drawRails(self, now);
  drawNodes(nodes);
  drawEvents(nodes);
  const rows = operations(self, now);
  drawOperations(rows);
  drawCommunicators(self);
  drawSummary(self, nodes, rows);
  text("built", `up ${age(now - Date.parse(self.Started) / 1000)}`);
}

const age = (s) => s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;

// asNeighbour brings this node into the form of the others.
function asNeighbour(s) {
  let operations = 0;
  for (const c of s.Counts || []) for (const k of c.Counts || []) operations += k.Took.Count;
  return { Node: s.Node, Rack: s.Rack, Silent: 0, Self: true, Obstacles: s.Obstacles, Operations: operations,
    Rails: s.Rails.map((r) => ({ Name: r.Name, Up: r.Up, BytesSent: r.BytesSent, Received: r.BytesReceived })),
    Communicators: s.Communicators || [], Events: s.Events, Groups: s.Aggregates ? (s.Aggregates.Groups || []).length : 0 };
}

// measure adds rates to a node.
function measure(n, now) {
  for (const r of n.Rails || []) {
    r.out = perSecond(`${n.Node} ${r.Name} out`, r.BytesSent, now);
    r.in = perSecond(`${n.Node} ${r.Name} in`, r.Received, now);
    if (n.Silent > silentAfter) r.out = r.in = 0; // nobody knows
  }
  n.ops = perSecond(`${n.Node} operations`, n.Operations, now);
}

// prune forgets counters of nodes that are gone.
function prune(nodes) {
  if (before.size < 4096) return;
  const names = new Set(nodes.map((n) => n.Node));
  for (const key of before.keys()) if (!names.has(key.split(" ")[0])) before.delete(key);
}

function drawVerdict(self, nodes) {
  const down = [], silent = [], bad = [];
  for (const n of nodes) {
    if (n.Silent > silentAfter) { silent.push(n.Node); continue; }
    for (const r of n.Rails || []) if (!r.Up) down.push(`${r.Name} on ${n.Node}`);
    if (n.Obstacles && n.Obstacles.length) bad.push(`${n.Node}: ${n.Obstacles[0]}`);
    for (const c of n.Communicators || []) if (c.Err) bad.push(`${c.Name} is broken on ${n.Node}`);
  }
  const pairs = (self.Pairs || []).filter((p) => !p.Up).map((p) => `${p.Rail} to ${p.Node}`);
  const parts = [];
  if (bad.length) parts.push(brief(bad));
  if (down.length) parts.push("down: " + brief(down));
  else if (pairs.length) parts.push("down: " + brief(pairs));
  if (silent.length) parts.push("silent: " + brief(silent));
  const e = document.getElementById("verdict");
  e.dataset.state = bad.length || down.length || pairs.length ? "bad" : silent.length ? "warn" : "good";
  text("verdict", parts.length ? parts.join("; ") : "all is well");
}

const brief = (list) => list.slice(0, 3).join(", ") + (list.length > 3 ? ` and ${list.length - 3} more` : "");

function drawSummary(self, nodes, rows) {
  const known = nodes.filter((n) => n.Silent >= 0 && n.Silent <= silentAfter);
  let railsUp = 0, railsAll = 0, traffic = 0, ops = 0;
  for (const n of known) {
    for (const r of n.Rails || []) { railsAll++; railsUp += r.Up ? 1 : 0; traffic += r.out; }
    ops = Math.max(ops, n.ops);
  }
  const busiest = rows.reduce((a, b) => (b.perSecond > (a ? a.perSecond : 0) ? b : a), null);
  const m = self.Memory;
  const tile = (value, unit, label, bad) => el("div", { class: "tile" + (bad ? " bad" : "") }, el("b", {}, value, unit ? el("i", {}, " " + unit) : ""), el("span", {}, label));
  const split = (s) => { const i = s.indexOf(" "); return [s.slice(0, i), s.slice(i + 1)]; };
  const all = (n, of, label) => tile(String(n), `of ${of}`, label, n < of);
  show("summary",
    tile(...split(rate(traffic)), "sent, all nodes"),
    tile(...split(si(ops, "op/s")), "of the busiest node"),
    busiest ? tile(...split(duration(busiest.median)), `median, ${busiest.kind} ${busiest.size}`) : tile("–", "", "median latency"),
    all(railsUp, railsAll, "rails up"),
    all(known.length, nodes.length, "nodes answer"),
    tile(...split(size(m.InUse)), `of ${size(m.Limit)} memory in use`));
}

function drawRails(self, now) {
  const pairs = self.Pairs || [];
  let top = 0, total = 0;
  for (const r of self.Rails) {
    if (!rails.has(r.Name)) rails.set(r.Name, new Series());
    const s = rails.get(r.Name);
    const out = before.get(`${self.Node} ${r.Name} out`), into = before.get(`${self.Node} ${r.Name} in`);
    const mine = pairs.filter((p) => p.Rail === r.Name);
    const up = r.Up && mine.every((p) => p.Up);
    const sample = { t: now, out: out ? out.rate : 0, in: into ? into.rate : 0, up };
    // A frame between two whole seconds, because of an event, corrects the last sample.
    if (s.samples.length && now - s.last.t < 0.7) Object.assign(s.last, sample, { t: s.last.t, up: up && s.last.up });
    else s.add(sample);
    top = Math.max(top, s.peak());
    total += s.last.out;
  }
  text("rails-note", `of ${self.Node}: sent (area) and received (dashes), two minutes`);
  const plan = planned(self);
  show("rails", self.Rails.map((r, i) => railCard(self, r, i, pairs.filter((p) => p.Rail === r.Name), top, total, plan)));
}

// planned is the entry for the largest allreduces of the first communicator with a table.
function planned(self) {
  for (const c of self.Communicators || []) {
    const classes = (c.Classes || []).filter((k) => k.Family === "allreduce");
    if (classes.length) return { name: c.Name, shares: classes[classes.length - 1].Shares };
  }
  return null;
}

function railCard(self, r, i, pairs, top, total, plan) {
  const up = pairs.filter((p) => p.Up).length, broken = pairs.filter((p) => !p.Up);
  const sum = (key) => pairs.reduce((a, p) => a + p[key], 0);
  const rates = pairs.filter((p) => p.Rate > 0);
  const s = rails.get(r.Name);
  const failed = (self.Failovers || []).find((f) => f.Rail === r.Name);
  const state = !r.Up ? ["bad", "down"] : broken.length ? ["bad", broken.length < pairs.length ? `down to ${broken.length} of ${pairs.length}` : "down"] : ["good", "up"];
  const fact = (name, value, bad) => el("div", bad ? { class: "bad" } : {}, el("dt", {}, name), el("dd", {}, value));
  const others = (r.Lanes || []).filter((l) => l.Lane !== r.Name && l.BytesSent > 0).map((l) => l.Lane);
  const meter = (label, part) => [el("span", {}, label), bar(only(part, self.Rails.indexOf(r))), el("b", {}, percent(part))];
  return el("article", { class: `card rail ${railColor(r.Name)}${state[0] === "bad" ? " down" : ""}`, "data-rail": r.Name, "data-up": String(state[0] === "good") },
    el("div", { class: "top" }, el("h3", {}, r.Name), el("span", { class: "device" }, `${r.Protocol} ${r.Chosen}`),
      el("span", { class: "badge", "data-state": state[0] }, state[1])),
    el("div", { class: "now" }, el("b", {}, rate(s.last.out)), el("span", {}, `received ${rate(s.last.in)}`)),
    chart(s, top),
    el("div", { class: "meter" }, meter("carries", total > 0 ? s.last.out / total : 0), plan ? meter("planned", plan.shares[i] || 0) : ""),
    el("dl", { class: "facts" },
      fact("peers", `${up} of ${pairs.length}`, up < pairs.length),
      rates.length ? fact("rate while busy", rate(sum("Rate") / rates.length)) : "",
      fact("in flight", size(sum("InFlight"))),
      sum("Queued") ? fact("waits", size(sum("Queued"))) : "",
      fact("sent again", `${r.Resent} frames, ${size(r.ResentBytes)}`, r.Resent > 0),
      r.Silences ? fact("silent", `${r.Silences} times`) : "",
      r.LinkDowns ? fact("link down", `${r.LinkDowns} times`) : "",
      failed && failed.Failovers.Count ? fact("failovers", `${failed.Failovers.Count}, ${duration(failed.Failovers.Sum / 1e9 / failed.Failovers.Count)} each`) : "",
      others.length ? fact("also carried", brief(others)) : ""));
}

const only = (part, i) => { const parts = []; parts[i] = part; return Array.from(parts, (p) => p || 0); };

const manyNodes = 24; // above it those in trouble come first

function drawNodes(nodes) {
  let top = 1;
  for (const n of nodes) for (const r of n.Rails || []) top = Math.max(top, r.out);
  const many = nodes.length > manyNodes, trouble = ["bad", "gone", "warn", ""];
  text("nodes-note", `${nodes.length}; each rail's rate of sending${many ? "; those in trouble first" : ""}`);
  const known = nodes.some((n) => (n.Rails || []).some((r) => !r.Up)); // which node it is that the others can't reach
  const list = nodes.map((n) => ({ n, ...condition(n, known) }));
  if (many) list.sort((a, b) => trouble.indexOf(a.state) - trouble.indexOf(b.state));
  document.getElementById("nodes").classList.toggle("many", many);
  show("nodes", list.map((l) => nodeCell(l.n, l.state, l.why, top)));
}

// condition is how a node is, and why: bad, gone (no answer), warn, or "" for well.
function condition(n, known) {
  if (n.Silent < 0) return { state: "gone", why: "no answer yet" };
  if (n.Silent > silentAfter) return { state: "gone", why: `no answer for ${Math.round(n.Silent)} s` };
  const broken = (n.Communicators || []).find((c) => c.Err), obstacle = (n.Obstacles || [])[0];
  if (broken) return { state: "bad", why: `${broken.Name}: ${cause(broken)}` };
  if (obstacle || (n.Rails || []).some((r) => !r.Up)) return { state: "bad", why: obstacle || "" };
  if (!known && (n.Communicators || []).some((c) => c.Degraded)) return { state: "warn", why: "a rail to some node is down" };
  return { state: "", why: "" };
}

function nodeCell(n, state, why, top) {
  const extra = [n.Self ? "this node" : "", n.Groups ? `${n.Groups} tree${n.Groups > 1 ? "s" : ""}` : "", n.Self ? "" : (n.Rack || "").split("/").pop()].filter(Boolean).join(" · ");
  return el("div", { class: `cell ${state}${n.Self ? " self" : ""}`, "data-node": n.Node, title: `${n.Node}${n.Rack ? " in " + n.Rack : ""}` },
    el("div", { class: "name" }, el("i", { class: "dot" }), el("span", {}, n.Node), el("em", {}, extra)),
    (n.Rails || []).map((r) => {
      const b = bar([r.Up ? r.out / top : 0]);
      if (b.firstChild) b.firstChild.className = railColor(r.Name);
      return el("div", { class: "lane" + (r.Up ? "" : " down"), title: r.Name }, b, el("span", {}, r.Up ? rate(r.out) : `${r.Name} down`));
    }),
    why ? el("div", { class: "why", title: why }, why) : "");
}

const kinds = {
  "rail down": "bad", "rank lost": "bad", "communicator broken": "bad", "tree down": "bad",
  "rail up": "good", "communicator formed": "good", "tree up": "good", "rail moved": "warn", "table changed": "",
};

// words say what an event means to a person.
function words(e) {
  switch (e.Kind) {
  case "rail down": return [`${e.Rail} to ${e.Node} is down`, [e.Err, e.Unacked ? `${size(e.Unacked)} were on their way` : ""]];
  case "rail up": return [`${e.Rail} to ${e.Node} is up`, []];
  case "rail moved": return [`${size((e.Resent || 0) + (e.Waiting || 0))} moved from ${e.Rail}`,
    [`to ${Object.entries(e.To || {}).map(([r, b]) => `${r} (${size(b)})`).join(", ") || "no rail yet"}`]];
  case "rank lost": return [`rank ${e.Rank} (${e.Node}) of ${e.Communicator} is lost`, [e.Err]];
  case "communicator formed": return [`${e.Communicator} formed`, [`rank ${e.Rank} here`]];
  case "communicator broken": return [`${e.Communicator} broke`, [cause({ Name: e.Communicator, Err: e.Err })]];
  case "table changed": return [`table ${e.Version} divides ${e.Communicator}`, []];
  case "tree up": return [`tree on ${e.Rail}: ${e.Node} adds up for ${e.Communicator}`, []];
  case "tree down": return [`tree on ${e.Rail} of ${e.Communicator} is gone`, [e.Err, e.Repaired ? `${e.Repaired} operations were repaired` : ""]];
  }
  return [e.Kind, [e.Err]];
}

// together joins what several nodes tell of the same thing in the same second.
function together(list) {
  const all = [], last = new Map();
  for (const e of list) {
    const key = [e.Kind, e.Rail, e.Communicator, e.Version, e.Kind.startsWith("rail") ? "" : e.Node, Math.floor(Date.parse(e.Time) / 1000)].join("\n");
    const same = last.get(key);
    if (same && e.At !== same.At && !e.Self && list.length > 20) { same.nodes++; continue; }
    const first = { ...e, nodes: 1 };
    last.set(key, first);
    all.push(first);
  }
  return all;
}

function drawEvents(nodes) {
  const list = [];
  for (const n of nodes) for (const e of n.Events || []) list.push({ ...e, At: n.Node, Self: n.Self });
  list.sort((a, b) => Date.parse(b.Time) - Date.parse(a.Time) || b.ID - a.ID);
  text("events-note", "on all nodes, the newest first");
  show("events", list.length ? together(list).slice(0, 60).map((e) => {
    const [what, details] = words(e);
    return el("li", { class: kinds[e.Kind] || "", "data-kind": e.Kind }, el("time", { datetime: e.Time }, clock(e.Time)),
      el("div", {}, el("b", {}, what), el("small", {}, [e.nodes > 1 ? `on ${e.nodes} nodes` : `on ${e.At}`, ...details.filter(Boolean)].join(" · "))));
  }) : el("li", {}, el("span"), "nothing yet"));
}

// operations are this node's, by communicator, kind and size, over the last 10 s.
function operations(self, now) {
  const counts = new Map();
  for (const c of self.Counts || []) for (const k of c.Counts || []) counts.set(`${c.Name}\n${k.Kind}\n${k.MaxBytes}`, { c, k });
  history.push({ now, counts });
  while (history.length > 2 && now - history[1].now >= window10) history.shift();
  const old = history[0], seconds = Math.max(now - old.now, 1e-3), rows = [];
  for (const [key, { c, k }] of counts) {
    const was = old.counts.get(key);
    const count = k.Took.Count - (was ? was.k.Took.Count : 0);
    const fresh = was && count > 0;
    const buckets = (k.Took.Buckets || []).map((n, i) => n - (fresh && was.k.Took.Buckets ? was.k.Took.Buckets[i] || 0 : 0));
    rows.push({ communicator: c.Name, kind: k.Kind, size: k.MaxBytes < 0 ? "any" : k.MaxBytes === 0 ? "none" : "≤ " + size(k.MaxBytes), order: k.MaxBytes,
      perSecond: was ? Math.max(count, 0) / seconds : 0, bytes: was ? Math.max(k.Bytes - was.k.Bytes, 0) / seconds : 0,
      median: quantile(buckets, 0.5), tail: quantile(buckets, 0.99), total: k.Took.Count, failed: k.Failed });
  }
  return rows.sort((a, b) => a.communicator.localeCompare(b.communicator) || a.kind.localeCompare(b.kind) || a.order - b.order);
}

// quantile interpolates in the bucket, whose ends are powers of two of microseconds.
function quantile(buckets, q) {
  const total = buckets.reduce((a, b) => a + b, 0);
  let left = q * total;
  for (let i = 0; i < buckets.length; i++) {
    if (left <= buckets[i] && buckets[i] > 0) {
      const low = i ? 1e-6 * 2 ** (i - 1) : 0, high = 1e-6 * 2 ** i;
      return low + (high - low) * left / buckets[i];
    }
    left -= buckets[i];
  }
  return 0;
}

function drawOperations(rows) {
  if (!rows.length) { show("operations", el("p", { class: "empty" }, "none yet")); return; }
  const head = ["communicator", "operation", "size", "per s", "bytes/s", "median", "99 %", "failed"];
  show("operations", el("table", {},
    el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { class: i > 2 && "n" }, h)))),
    el("tbody", {}, rows.map((r) => el("tr", {},
      el("td", {}, r.communicator), el("td", {}, r.kind), el("td", {}, r.size),
      number("per s", si(r.perSecond, "").trim(), { title: `${r.total} in all` }), number("", rate(r.bytes)),
      number("median", duration(r.median)), number("99 %", duration(r.tail)),
      number("failed", String(r.failed), { class: r.failed ? "n bad" : "n" }))))));
}

// number is a cell whose column's name stands beside it where the page is narrow.
const number = (name, value, more) => el("td", { class: "n", "data-name": name || undefined, ...more }, value);

function drawCommunicators(self) {
  const list = self.Communicators || [];
  show("communicators", list.length ? list.map((c) => communicator(self, c)) : el("p", { class: "empty" }, "none is open"));
}

function communicator(self, c) {
  const facts = [`rank ${c.Rank} of ${c.Size}`, `${c.Seq} operations`, `${c.InFlight} in flight`, `table ${c.Version}`, c.Origin];
  for (const t of c.Trees || []) facts.push(`tree on ${t.Rail} at ${t.Node}`);
  if (c.Degraded) facts.push("a rail to a member is down");
  const trees = new Set((c.Trees || []).map((t) => t.Rail));
  const rows = (c.Classes || []).map((k) => el("tr", {},
    el("td", {}, k.Family),
    el("td", {}, k.MaxBytes ? "≤ " + size(k.MaxBytes) : "larger"), el("td", {}, k.Algorithm),
    el("td", {}, bar(k.Shares || [])), el("td", { class: "n" }, (k.Shares || []).map((s) => Math.round(100 * s)).join(" / ")),
    el("td", { class: "n" }, k.Now ? duration(k.Now / 1e9) : ""), el("td", { class: "why" }, k.Reason)));
  const keys = self.Rails.map((r, i) => el("span", { class: "key " + color(i) }, r.Name + (trees.has(r.Name) ? " (tree)" : "")));
  return el("article", { class: "card comm" },
    el("div", { class: "head" }, el("h3", {}, c.Name, el("small", {}, facts.filter(Boolean).join(" · "))),
      c.Err ? el("p", { class: "bad" }, cause(c)) : el("p", {}, "members: " + members(c.Nodes || [])), rows.length ? el("p", {}, keys) : ""),
    rows.length ? el("div", { class: "scroll" }, el("table", { class: "classes" },
      el("thead", {}, el("tr", {}, ["operations", "size", "algorithm", "shares", "%", "time", "why"].map((h, i) => el("th", { class: i === 4 || i === 5 ? "n" : false }, h)))),
      el("tbody", {}, rows))) : "");
}

const members = (nodes) => nodes.slice(0, 12).join(", ") + (nodes.length > 12 ? ` … ${nodes[nodes.length - 1]} (${nodes.length})` : "");

function connected(on) {
  const e = document.getElementById("live");
  e.dataset.state = on ? "on" : "off";
  text("live", on ? "live" : "no news from the node; trying again");
  if (!on) { document.getElementById("verdict").dataset.state = "wait"; text("verdict", "what you see is old"); }
}

function take(frame) {
  if (frame === null) return connected(false);
  lastFrame = Date.now();
  connected(true);
  draw(JSON.parse(frame));
}

function listen() {
  if (!window.SharedWorker) {
    const source = new EventSource("api/live");
    source.onmessage = (m) => take(m.data);
    source.onerror = () => take(null);
    return;
  }
  const port = new SharedWorker("live.js").port;
  port.onmessage = (m) => take(m.data);
  addEventListener("pagehide", () => port.postMessage("bye"), { once: true });
}

listen();
addEventListener("pageshow", (e) => { if (e.persisted && window.SharedWorker) listen(); }); // it was kept, and said bye
setInterval(() => { if (lastFrame && Date.now() - lastFrame > 5000) connected(false); }, 1000);
