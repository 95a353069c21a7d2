// Explain: what happens to a label set, step by step, and why.

import { el, number, bar } from "./dom.js";

const fewRules = 8;

// find gives what the page knows of a class: whether it has dropped of late.
export function startExplain(section, result, find) {
  const form = section.querySelector("form");
  const labels = section.querySelector("#explain-labels");
  const stream = section.querySelector("#explain-stream");
  const key = section.querySelector("#explain-key");
  const run = () => explain(result, labels, stream.value, key.value.trim(), find);
  form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
  labels.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });
  const link = new URLSearchParams(location.hash.startsWith("#explain?") ? location.hash.slice(9) : "");
  if (link.has("labels")) {
    labels.value = link.get("labels");
    if ([...stream.options].some((o) => o.value === link.get("stream"))) stream.value = link.get("stream");
    key.value = link.get("api_key") ?? "";
    run();
  }
}

// tidy takes what people paste: a line of an exposition has a value and perhaps a
// time behind the labels, a log line's labels may be JSON.
function tidy(text) {
  text = text.trim();
  if (text.startsWith("{")) {
    try {
      const pairs = Object.entries(JSON.parse(text));
      return `{${pairs.map(([n, v]) => `${JSON.stringify(n)}=${JSON.stringify(String(v))}`).join(", ")}}`;
    } catch {
      // Not JSON, so it is PromQL's notation.
    }
  }
  const value = "[-+]?(?:[0-9.][0-9.eE+-]*|NaN|Inf)";
  return text.replace(new RegExp(`(?<=[}\\w])\\s+${value}(\\s+[0-9]+)?$`), "");
}

async function explain(result, labels, stream, key, find) {
  const set = tidy(labels.value);
  if (set === "") {
    fail(result, labels, "Paste a series first, such as up{team=\"a\"}.");
    return;
  }
  const query = new URLSearchParams({ stream, labels: set });
  if (key) query.set("api_key", key);
  history.replaceState(null, "", "#explain?" + query);
  result.setAttribute("aria-busy", "true");
  try {
    const response = await fetch("api/v1/explain?" + query, { signal: AbortSignal.timeout(8000), cache: "no-store" });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    labels.removeAttribute("aria-invalid");
    show(result, answer, find(stream, answer.class));
  } catch (err) {
    fail(result, labels, err.message);
  }
  result.removeAttribute("aria-busy");
}

function fail(result, labels, message) {
  labels.setAttribute("aria-invalid", "true");
  result.replaceChildren(el("p", { class: "verdict bad", role: "alert", text: message }));
  labels.focus();
}

function show(result, e, known) {
  const lost = e.outcome.startsWith("dropped") || e.outcome === "invalid";
  // A bucket may have a token at this very moment and none for most of what comes.
  const short = !lost && known?.dropping;
  const verdict = el("div", { class: "verdict " + (lost ? "bad" : short ? "warn" : "good"), tabindex: "-1" },
    el("strong", { text: e.outcome[0].toUpperCase() + e.outcome.slice(1) + (short ? " at this moment" : "") }), ` — ${e.why}.`,
    short ? el("p", { text: `But ${number(100 * known.dropped / (known.dropped + known.admitted))} % of this class was dropped in the last 30 seconds. ${known.why}` }) : null);
  const steps = el("ol", { class: "steps" }, asSent(e), ...e.relabel.map(relabelStep), e.policy ? rules(e) : null, e.bucket ? bucket(e.bucket) : null);
  result.replaceChildren(verdict, steps);
  verdict.focus({ preventScroll: true });
  verdict.scrollIntoView({ block: "nearest" });
}

function step(state, title, ...body) {
  return el("li", { data: { state } }, el("p", { class: "step-title", text: title }), ...body);
}

function chips(set, before) {
  return el("ul", { class: "chips" }, ...Object.keys(set).sort().map((name) => {
    const fresh = before && (!Object.hasOwn(before, name) || before[name] !== set[name]);
    return el("li", { class: fresh ? "fresh" : null }, el("span", { class: "label-name", text: name }), el("span", { text: ` = ${JSON.stringify(set[name])}` }), fresh ? el("span", { class: "unseen", text: " (new)" }) : null);
  }), ...Object.keys(before ?? {}).filter((n) => !Object.hasOwn(set, n)).sort().map((name) => el("li", { class: "gone" }, el("del", { text: name }))));
}

function asSent(e) {
  return step("good", e.sender ? `As sent with the API key ${e.sender}` : "As sent", chips(e.labels));
}

function relabelStep(s, i) {
  const rule = el("code", { class: "rule", text: s.rule });
  if (s.dropped) return step("bad", `Relabel rule ${i} drops it`, rule, el("p", { class: "because", text: s.why }));
  if (s.changed) return step("good", `Relabel rule ${i} changes it`, rule, chips(s.after, s.before));
  return step("plain", `Relabel rule ${i} changes nothing`, rule, el("p", { class: "because", text: s.why }));
}

// rules shows the one that matched and those before it, which are why it was
// reached; the rest can be opened.
function rules(e) {
  const p = e.policy;
  const all = p.rules.map((rule, i) => policyRule(rule, i, p.rule));
  const upTo = p.rule < 0 ? all.length : p.rule + 1;
  const first = all.slice(Math.max(0, upTo - fewRules), upTo);
  const rest = [...all.slice(0, Math.max(0, upTo - fewRules)), ...all.slice(upTo)];
  const title = p.rule < 0 ? "No rule matches: it belongs to the class default" : `Rule ${p.rule} is the first that matches: it belongs to the class ${p.class}`;
  return step("good", title, el("ul", { class: "rules" }, ...first),
    rest.length ? el("details", {}, el("summary", { text: `${rest.length} other rule${rest.length === 1 ? "" : "s"}` }), el("ul", { class: "rules" }, ...rest)) : null);
}

function policyRule(rule, i, winner) {
  const mark = i === winner ? "matches" : rule.matches ? "would match, but comes later" : "does not match";
  return el("li", { data: { state: i === winner ? "good" : "plain" } },
    el("p", {}, el("strong", { text: `Rule ${i} → ${rule.class}` }), ` ${mark}`),
    el("ul", { class: "matchers" }, ...rule.matchers.map((m) => el("li", { data: { state: m.matches ? "good" : "bad" } },
      el("span", { "aria-hidden": "true", text: m.matches ? "✓ " : "✗ " }), el("code", { text: m.matcher }),
      ` ${m.matches ? "holds" : "fails"}: ${m.present ? `the label is ${JSON.stringify(m.value)}` : "there is no such label"}`))));
}

function bucket(b) {
  if (!b.configured) return step("bad", `Class ${b.name} is not configured`, el("p", { class: "because", text: "The policy has a rule for it but no budget. Add the class, or correct the rule." }));
  if (b.tokens === null) return step("bad", `Class ${b.name} has rate 0`, el("p", { class: "because", text: "It has no bucket and loses every item. Give it a rate." }));
  const level = bar();
  level.set(b.tokens / b.burst_per_ingester);
  return step(b.tokens < 1 ? "bad" : "good", `The bucket of class ${b.name}`,
    el("div", { class: "bucket" }, level.node, el("span", { text: `${number(Math.floor(b.tokens))} of ${number(b.burst_per_ingester)} tokens` })),
    el("p", { class: "because", text: `It gets ${number(b.rate_per_ingester)} tokens/s on this ingester, its part of ${number(b.rate)} items/s over all; its share of the cap is ${b.share_percent} %.` }));
}
