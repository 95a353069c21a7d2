// The governor's picture: slots in use, what limits them, CPU, and whose batches wait.

import { el, number, seconds } from "./dom.js";

let key = "";

export function showGovernor(root, g) {
  const next = JSON.stringify(g);
  if (next === key) return;
  key = next;
  root.replaceChildren(slots(g), facts(g), flows(g));
}

// slots draws those in use, those free, and those that the ceiling would allow.
function slots(g) {
  const scale = Math.max(g.max_in_flight, g.in_flight, 1);
  const x = (v) => (100 * Math.min(1, v / scale)).toFixed(2);
  return el("div", { class: "slots" },
    el("p", { class: "slots-text" }, el("strong", { text: number(g.in_flight) }), ` of ${number(g.capacity)} slots in use, `, el("strong", { text: number(g.waiting) }), " waiting"),
    el("svg", { class: "gauge", viewBox: "0 0 100 12", preserveAspectRatio: "none", role: "img", "aria-label": `${g.in_flight} of ${g.capacity} slots in use; the ceiling is ${g.max_in_flight}` },
      el("rect", { class: "trough", width: 100, height: 12 }),
      el("rect", { class: "capacity", width: x(g.capacity), height: 12 }),
      el("rect", { class: "fill", width: x(g.in_flight), height: 12 })),
    el("p", { class: "hint", text: `The light part is the capacity, the whole bar the ceiling of ${number(g.max_in_flight)}.` }));
}

// binding names what sets the capacity: the lowest of the signals.
function binding(g) {
  const signals = [["CPU model", g.model], ["pressure step", g.step], ["latency limit", g.latency]].sort((a, b) => a[1] - b[1]);
  if (signals[0][1] >= g.max_in_flight) return "the configured ceiling; no signal is below it";
  return `the ${signals[0][0]}, at ${number(signals[0][1])}`;
}

function facts(g) {
  const cpu = g.cpu;
  const rows = [
    ["Capacity is set by", binding(g)],
    ["CPU model · step · latency", [g.model, g.step, g.latency].map(number).join(" · ")],
    ["CPU", cpu.limit_cores > 0 ? `${number(cpu.used_cores)} of ${number(cpu.limit_cores)} cores` : "no CPU limit is known"],
    ["Stalled for CPU", `${number(cpu.stall_ratio * 100)} % of the last sample`],
    ["Time of a batch", g.batch_time.mean_seconds > 0 ? `${seconds(g.batch_time.mean_seconds)} of a slot, on average` : "none yet"],
    ["Batches", `${number(g.arrivals)} arrived, ${number(g.completions)} completed`],
  ];
  if (g.problem) rows.push(["Problem", g.problem]);
  return el("dl", {}, ...rows.flatMap(([term, value]) => [el("dt", { text: term }), el("dd", { text: value })]));
}

function flows(g) {
  if (g.flows.length === 0) return el("p", { class: "hint", text: "No batch is in work right now." });
  const head = ["Flow", "In work", "Waiting", "Shed"];
  return el("table", { class: "flows" }, el("caption", { text: `Flows with work; each is owed ${number(g.guaranteed)} slots` }),
    el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col", text: h })))),
    el("tbody", {}, ...g.flows.slice(0, 10).map((f) => el("tr", {}, el("th", { scope: "row", text: f.flow }),
      ...[f.in_flight, f.waiting, f.shed].map((v) => el("td", { class: "num", text: number(v) }))))));
}
