"use strict";
// Draws the runs of this page. All text of a run is set as text, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const GUTTER = 118, RULER = 22, LEASE = 24, MARKS = 30, GAP = 8, RIGHT = 14;
const SHAPES = {
  action: ["M0 -7 L6 5 L-6 5 Z", "what a client did"],
  commit: ["M-5 -5 H5 V5 H-5 Z", "commit"],
  refused: ["M-5 -5 L5 5 M5 -5 L-5 5", "write refused", "alarm"],
  disk: ["M-5 -4 Q0 -8 5 -4 V4 Q0 8 -5 4 Z M-5 -4 Q0 0 5 -4", "what the disk did, or lost", "alarm"],
  open: ["M-5 -6 L6 0 L-5 6 Z", "provider request"],
  chunk: ["M-2.5 -2.5 H2.5 V2.5 H-2.5 Z", "stream chunk"],
  said: ["M0 -5 L5 0 L0 5 L-5 0 Z", "other stream event", "hollow"],
  tool: ["M-5 -3 L0 -6 L5 -3 L5 3 L0 6 L-5 3 Z", "tool starts"],
  told: ["M0 -6 V6", "listener told"],
  bell: ["M-4 4 L0 -5 L4 4 Z", "doorbell: another node committed", "hollow"],
  fault: ["M-4 8 V-8 L6 -4 L-4 0", "fault", "alarm"],
  node: ["M-4 -6 H4 M0 -6 V6 M-4 6 H4", "node stops or goes on"],
};
const view = { from: 0, to: 1, byTime: false, chosen: null, broken: -1 };
const charts = [];

// --- small helpers --------------------------------------------------------------------------------

function make(parent, name, attributes, text) {
  const element = parent.namespaceURI === SVG || name === "svg"
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

function thousands(number) {
  const [whole, part] = String(Math.round(number * 1000) / 1000).split(".");
  return whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f") + (part ? "." + part : "");
}

function short(text, most) {
  const points = Array.from(text);
  return points.length <= most ? text : points.slice(0, most - 1).join("") + "…";
}

function colorOf(run, execution) {
  const place = execution === null ? -1 : run.executions.indexOf(execution);
  return place < 0 ? "none" : "c" + (place % 8);
}

// --- scales: each moment (ms, index) has a place from 0 to 1 ----------------------------------------

// By order, things of one moment stand side by side and idle time is shortened; by time, it is linear.
function scales(run) {
  const anchors = new Map();
  const add = (ms, index) => anchors.set(ms + "/" + index, [ms, index]);
  add(0, -1);
  add(run.end_ms, run.end_index);
  for (const mark of run.marks) add(mark.ms, mark.index);
  for (const span of [...run.leases, ...run.bands]) {
    add(span.ms, span.index);
    add(span.until_ms, span.until_index);
    for (const [ms, index] of span.changes || []) add(ms, index);
  }
  const sorted = [...anchors.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const places = [];
  let place = 0, before = 0;
  for (const [ms] of sorted) {
    place += 1 + (ms > before ? Math.log2(1 + (ms - before)) : 0);
    before = ms;
    places.push(place);
  }
  const whole = places[places.length - 1] + 1;
  const scale = { whole, byTime: (ms) => 0.005 + 0.99 * (ms / most) };
  const most = Math.max(1, ...DATA.runs.map((each) => each.end_ms));
  scale.byOrder = (ms, index) => {
    let low = 0, high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      const [at, nth] = sorted[middle];
      if (at < ms || (at === ms && nth < index)) low = middle + 1; else high = middle;
    }
    return places[low] / scale.whole;
  };
  return scale;
}

// --- one chart --------------------------------------------------------------------------------------

function chart(run, title, note) {
  const section = make(document.getElementById("runs"), "section");
  make(section, "h2", {}, title);
  if (note) make(section, "p", { class: "note" }, note);
  const svg = make(section, "svg", { class: "run", tabindex: "0", role: "group", "aria-label": title });
  const made = { run, svg, scale: scales(run), marks: [] };
  listen(made);
  charts.push(made);
  return made;
}

function draw(it) {
  const { run, svg } = it;
  while (svg.firstChild) svg.removeChild(svg.firstChild);
  const width = Math.max(640, Math.round(svg.parentNode.clientWidth || 1240));
  const inner = width - GUTTER - RIGHT;
  const scale = view.byTime ? it.scale.byTime : it.scale.byOrder;
  const x = (ms, index) => GUTTER + ((scale(ms, index) - view.from) / (view.to - view.from)) * inner;
  const rows = lanes(run);
  const height = rows.height + 4;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const clip = make(make(svg, "defs"), "clipPath", { id: "clip" + charts.indexOf(it) });
  make(clip, "rect", { x: GUTTER, y: 0, width: inner + RIGHT, height });
  for (const [lane, row] of rows.lanes) background(svg, lane, row, width);
  const layer = make(svg, "g", { "clip-path": `url(#clip${charts.indexOf(it)})` });
  ruler(layer, run, x, width, 0, run.stops, "true time");
  for (const band of run.bands) drawBand(layer, band, rows.lanes.get(band.node), x);
  for (const node of run.nodes) ruler(layer, run, x, width, rows.lanes.get(node).top, run.clocks[node], node);
  for (const lease of run.leases) drawLease(layer, run, lease, rows.lanes.get(lease.node), x);
  if (DATA.parting !== null) drawParting(layer, it, x, height);
  run.broken.forEach((broken) => drawMoment(layer, broken, run, x, height));
  it.marks = run.marks.map((mark) => drawMark(layer, it, mark, rows.lanes.get(mark.lane), x));
}

function lanes(run) {
  const found = new Map();
  let top = RULER + GAP;
  const add = (lane, height, kind) => { found.set(lane, { top, height, kind }); top += height + GAP; };
  add("clients", MARKS, "");
  for (const node of run.nodes) add(node, RULER + run.sessions.length * LEASE + MARKS, "node");
  add("store", MARKS, "");
  add("provider", MARKS, "");
  return { lanes: found, height: top };
}

function background(svg, lane, row, width) {
  make(svg, "rect", { class: "lane", x: 0, y: row.top, width, height: row.height });
  make(svg, "text", { x: 8, y: row.top + (row.kind ? 15 : 19) }, short(row.kind ? "node " + lane : lane, 17));
  if (row.kind) make(svg, "text", { class: "soft", x: 8, y: row.top + 31 }, "its clock (ms)");
}

function ruler(layer, run, x, width, top, readings, name) {
  let after = 0;
  run.stops.forEach((ms, place) => {
    const at = x(ms, -1);
    const label = thousands(readings[place]);
    const half = label.length * 3.4;
    const from = Math.max(at - half, GUTTER);
    if (at < GUTTER || from < after || from + 2 * half > width) return;
    make(layer, "line", { class: "rule", x1: at, x2: at, y1: top, y2: top + 6 });
    const text = make(layer, "text", { class: "soft", x: from, y: top + 17 }, label);
    const wrong = readings[place] - Math.floor(ms);
    const difference = wrong ? `, ${wrong > 0 ? "ahead" : "behind"} by ${thousands(Math.abs(wrong))} ms` : "";
    make(text, "title", {}, `${name}: ${label} ms${difference} (true time ${thousands(ms)} ms)`);
    after = from + 2 * half + 12;
  });
  if (top === 0) make(layer.parentNode, "text", { class: "soft", x: 8, y: 17 }, "true time (ms)");
}

function drawBand(layer, band, row, x) {
  const from = x(band.ms, band.index), until = x(band.until_ms, band.until_index);
  const rect = make(layer, "rect", {
    class: "band-" + band.kind, x: from, y: row.top, width: Math.max(2, until - from), height: row.height,
  });
  make(rect, "title", {}, `${band.node} is ${band.kind}: ${thousands(band.ms)} to ${thousands(band.until_ms)} ms`);
}

function drawLease(layer, run, lease, row, x) {
  const top = row.top + RULER + run.sessions.indexOf(lease.session) * LEASE + 2;
  const from = x(lease.ms, lease.index), until = Math.max(from + 3, x(lease.until_ms, lease.until_index));
  const group = make(layer, "g", { class: "lease " + colorOf(run, lease.execution) });
  make(group, "rect", { x: from, y: top, width: until - from, height: LEASE - 6, rx: 3 });
  for (const [ms, index, changes] of lease.changes) {
    if (changes.phase === undefined) continue;
    const at = x(ms, index);
    make(group, "line", { class: "change", x1: at, x2: at, y1: top + 13, y2: top + LEASE - 6 });
  }
  if (lease.taken_over) make(group, "line", { class: "cut", x1: until, x2: until, y1: top, y2: top + LEASE - 6 });
  const left = Math.max(from, GUTTER) + 4, room = Math.floor((until - left) / 6.4);
  const name = `${lease.session}: ${lease.execution}`;
  if (room > 4) make(group, "text", { x: left, y: top + 13 }, short(name, room));
  const last = lease.taken_over ? "taken over" : "cleared, or the run's end";
  make(group, "title", {}, `${name}\n${thousands(lease.ms)} to ${thousands(lease.until_ms)} ms (${last})`);
  group.addEventListener("click", () => tell(name, `lease on node ${lease.node}`, lease.changes));
}

function drawMark(layer, it, mark, row, x) {
  const [path, , extra] = SHAPES[mark.kind];
  const y = row.top + row.height - MARKS / 2;
  const at = x(mark.ms, mark.index);
  if (at < GUTTER - 10 || at > it.svg.viewBox.baseVal.width + 10) return null;
  const group = make(layer, "g", {
    class: `mark ${mark.kind} ${colorOf(it.run, mark.execution)}`, transform: `translate(${at} ${y})`,
  });
  make(group, "path", { d: path, class: extra || "" });
  make(group, "circle", { class: "target", r: 10 });
  if (mark.kind === "action") name(group, it.run, mark, x, at);
  group.addEventListener("click", () => choose(it, it.run.marks.indexOf(mark)));
  group.addEventListener("mouseenter", (event) => tip(sentence(mark), event));
  group.addEventListener("mouseleave", () => tip(null));
  if (view.chosen && view.chosen.it === it && it.run.marks[view.chosen.place] === mark) {
    group.classList.add("chosen");
  }
  return group;
}

// The name beside what a client did, if there is room until the next.
function name(group, run, mark, x, at) {
  const next = run.marks.find((each) => each.kind === "action" && x(each.ms, each.index) > at);
  const room = Math.floor(((next ? x(next.ms, next.index) : at + 140) - at - 20) / 6.4);
  if (room > 3) make(group, "text", { x: 10, y: 4 }, short(mark.label, Math.min(room, 24)));
}

function drawMoment(layer, broken, run, x, height) {
  if (broken.ms === null) return;
  const at = x(broken.ms, broken.index === null ? run.end_index : broken.index);
  const line = make(layer, "line", { class: "moment", x1: at, x2: at, y1: 0, y2: height });
  make(line, "title", {}, `${broken.sentence} (${broken.rule})`);
  make(layer, "text", { class: "wrong", x: at + 4, y: height - 6 }, short(broken.rule, 24));
}

function drawParting(layer, it, x, height) {
  const mark = it.run.marks[DATA.parting];
  const at = (mark ? x(mark.ms, mark.index) : x(it.run.end_ms, it.run.end_index)) - 5;
  const line = make(layer, "line", { class: "parting", x1: at, x2: at, y1: 0, y2: height });
  make(line, "title", {}, "the two runs part here");
}

// --- what is told -------------------------------------------------------------------------------------

function sentence(mark) {
  return `${SHAPES[mark.kind][1]}: ${mark.label} (${mark.task || mark.lane}, ${thousands(mark.ms)} ms)`;
}

function tell(title, text, detail) {
  const aside = document.getElementById("details");
  aside.hidden = false;
  aside.querySelector("h2").textContent = title;
  aside.querySelector("p").textContent = text;
  aside.querySelector("pre").textContent = JSON.stringify(detail, null, 2);
}

function tip(text, event) {
  const box = document.getElementById("tip");
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = text;
  box.style.left = Math.min(event.clientX + 12, window.innerWidth - 400) + "px";
  box.style.top = event.clientY + 16 + "px";
}

function choose(it, place) {
  const mark = it.run.marks[place];
  view.chosen = { it, place };
  const whose = mark.execution ? `, execution ${mark.execution}` : "";
  tell(sentence(mark), `trace entry ${mark.index}${whose}`, mark.detail);
  reveal(it, mark.ms, mark.index);
}

function reveal(it, ms, index) {
  const at = (view.byTime ? it.scale.byTime : it.scale.byOrder)(ms, index);
  const span = view.to - view.from;
  if (at < view.from || at > view.to) move(at - span / 2, at + span / 2); else drawAll();
}

// --- moving about -------------------------------------------------------------------------------------

function move(from, to) {
  const span = Math.min(1, Math.max(0.002, to - from));
  view.from = Math.min(Math.max(0, from), 1 - span);
  view.to = view.from + span;
  drawAll();
}

function zoom(factor, around) {
  const middle = around === undefined ? (view.from + view.to) / 2 : around;
  move(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
}

function step(by) {
  const it = view.chosen ? view.chosen.it : charts[0];
  const place = view.chosen ? view.chosen.place + by : by > 0 ? 0 : it.run.marks.length - 1;
  if (it.run.marks[place]) choose(it, place);
}

function showBroken(place) {
  const run = DATA.runs[0], broken = run.broken[place];
  view.broken = place;
  tell(`${broken.sentence} (${broken.rule})`, "what broke", broken);
  if (broken.ms === null) return;
  const there = run.marks.findIndex((mark) => mark.index === broken.index && mark.kind !== "action");
  view.chosen = there < 0 ? null : { it: charts[0], place: there };
  const index = broken.index === null ? run.end_index : broken.index;
  const at = (view.byTime ? charts[0].scale.byTime : charts[0].scale.byOrder)(broken.ms, index);
  move(at - 0.125, at + 0.125);
}

const KEYS = {
  "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => move(0, 1),
  ArrowLeft: () => move(view.from - (view.to - view.from) / 5, view.to - (view.to - view.from) / 5),
  ArrowRight: () => move(view.from + (view.to - view.from) / 5, view.to + (view.to - view.from) / 5),
  j: () => step(1), k: () => step(-1),
  v: () => DATA.runs[0].broken.length && showBroken((view.broken + 1) % DATA.runs[0].broken.length),
  t: () => { view.byTime = !view.byTime; move(0, 1); },
  Escape: () => { document.getElementById("details").hidden = true; view.chosen = null; drawAll(); },
};

function listen(it) {
  let dragged = null;
  const share = (pixels) => pixels / Math.max(1, it.svg.clientWidth - GUTTER - RIGHT);
  it.svg.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, from: view.from, to: view.to };
  });
  window.addEventListener("pointermove", (event) => {
    if (!dragged || !(event.buttons & 1)) { dragged = null; return; }
    const by = share(event.clientX - dragged.x) * (dragged.to - dragged.from);
    if (Math.abs(event.clientX - dragged.x) > 3) move(dragged.from - by, dragged.to - by);
  });
  it.svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const left = it.svg.getBoundingClientRect().left + GUTTER;
    zoom(event.deltaY > 0 ? 1.25 : 0.8, view.from + share(event.clientX - left) * (view.to - view.from));
  }, { passive: false });
}

function drawAll() {
  charts.forEach(draw);
  document.getElementById("scale").textContent = view.byTime ? "by true time" : "by order";
}

// --- the page -----------------------------------------------------------------------------------------

function head(run) {
  const verdict = document.getElementById("verdict");
  verdict.textContent = run.verdict;
  verdict.className = run.verdict === "held" ? "held" : "wrong";
  document.getElementById("name").textContent = run.scenario;
  document.getElementById("proves").textContent = run.proves;
  document.getElementById("facts").textContent =
    `${thousands(run.gates)} gates, ${thousands(run.end_ms)} ms of true time, digest ${run.digest}` +
    (run.marks_left_out ? `; ${thousands(run.marks_left_out)} later marks are left out` : "");
  run.broken.forEach((broken, place) => {
    const item = make(document.getElementById("broken"), "li");
    const when = broken.ms === null ? "" : `, at ${thousands(broken.ms)} ms`;
    const button = make(item, "button", { type: "button" }, `${broken.sentence} (${broken.rule}${when})`);
    button.addEventListener("click", () => showBroken(place));
  });
  document.getElementById("to-broken").hidden = !run.broken.length;
}

function legend() {
  for (const [kind, [path, meaning, extra]] of Object.entries(SHAPES)) {
    const item = make(document.getElementById("legend"), "li");
    const svg = make(item, "svg", { viewBox: "-9 -9 18 18", "aria-hidden": "true" });
    const group = make(svg, "g", { class: "mark none " + kind });
    make(group, "path", { d: path, class: extra || "" });
    make(item, "span", {}, meaning);
  }
}

window.addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});
document.getElementById("tools").addEventListener("click", (event) => {
  const key = event.target.dataset.key;
  if (key) KEYS[key]();
});
window.addEventListener("resize", drawAll);
head(DATA.runs[0]);
chart(DATA.runs[0], DATA.runs.length > 1 ? "The run that broke" : "The run",
  "Bars are leases, coloured by execution; each node has the ruler of its own clock.");
if (DATA.runs.length > 1) {
  chart(DATA.runs[1], "The nearest run that held: " + DATA.change,
    DATA.parting === null ? "" : "A dashed line marks where the two runs part.");
} else if (DATA.runs[0].broken.length) {
  make(document.getElementById("runs"), "p", { class: "note" }, "No run near this one held.");
}
// One unit for both, so that what they have in common stands one above the other.
const whole = Math.max(...charts.map((each) => each.scale.whole));
for (const each of charts) each.scale.whole = whole;
legend();
drawAll();
document.documentElement.dataset.ready = "yes";
