// Asks the server every two seconds and shows what it says.

import { el, setText } from "./dom.js";
import { History } from "./history.js";
import { Streams } from "./streams.js";
import { showGovernor } from "./governor.js";
import { startExplain } from "./explain.js";

const every = 2000;
const patience = 8000;
const history = new History();
const streams = new Streams(document.getElementById("streams"), document.getElementById("quiet"));
let lastGood = null;
let failures = 0;
let said = "";

async function ask(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(patience), cache: "no-store", headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`${path} answers ${response.status} ${response.statusText}`);
  return response.json();
}

async function round() {
  const [status, news, governor] = await Promise.all([
    ask("api/v1/ratecontrol"), ask(`api/v1/ratecontrol/history?after=${history.sequence}`), ask("api/v1/governor"),
  ]);
  if (!history.take(news)) history.take(await ask("api/v1/ratecontrol/history?after=0"));
  show(status, governor);
}

function show(status, governor) {
  const n = status.ingesters ?? 1;
  setText(document.getElementById("about"), `${status.instance ?? ""} · ${n === 1 ? "the only ingester" : `1 of ${n} ingesters`} · ${status.version ?? ""}`);
  history.inForce = (status.now_unix_ms - status.in_force_since_unix_ms) / 1000;
  const dropping = streams.show(status, history);
  headline(dropping);
  showGovernor(document.getElementById("governor-body"), governor);
  showRefused(status.refused);
}

// headline answers the question of the page in one line, and names each class.
function headline(dropping) {
  const big = document.getElementById("headline");
  const list = document.getElementById("droppers");
  const rate = dropping.reduce((sum, d) => sum + d.rate, 0);
  big.dataset.state = dropping.length ? "bad" : "good";
  const who = dropping.length === 1 ? "1 class is dropping" : `${dropping.length} classes are dropping`;
  setText(big, dropping.length ? `${who} ${streams.number(rate)} items/s` : "Nothing is being dropped");
  const shown = dropping.slice(0, 8);
  const key = JSON.stringify(shown.map((d) => [d.stream, d.name, d.why]));
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...shown.map((d) => el("li", {},
      el("a", { href: "#" + d.id, text: d.name }), el("span", { class: "stream", text: d.stream }), el("span", { text: d.why }))));
    if (dropping.length > shown.length) list.append(el("li", { text: `and ${dropping.length - shown.length} more` }));
  }
  // Names, not numbers: those change all the time, and a voice would never rest.
  const names = dropping.length ? `Dropping: ${shown.map((d) => `${d.name} of ${d.stream}`).join(", ")}` : "Nothing is being dropped";
  if (names !== said) {
    said = names;
    setText(document.getElementById("announce"), names);
  }
}

function showRefused(refused) {
  const node = document.getElementById("refused");
  const key = JSON.stringify(refused ?? null);
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.hidden = !refused;
  if (!refused) return;
  node.replaceChildren(
    el("strong", { text: "The last change of the configuration was refused." }),
    ` The one before stays in force. Refused at ${clock(new Date(refused.time))}:`,
    el("ul", {}, ...refused.problems.map((p) => el("li", {}, el("code", { text: p })))));
}

function clock(date) {
  return date.toLocaleTimeString([], { hour12: false });
}

function setLive(state, text) {
  const live = document.getElementById("live");
  if (live.dataset.state !== state) live.dataset.state = state;
  setText(document.getElementById("live-text"), text);
}

function arrived() {
  failures = 0;
  lastGood = new Date();
  document.body.classList.remove("stale");
  document.getElementById("away").hidden = true;
  setLive("live", `Live, ${clock(lastGood)}`);
}

function away(err) {
  failures++;
  document.body.classList.add("stale");
  setLive("away", "Not answering");
  const node = document.getElementById("away");
  const why = err.name === "TimeoutError" ? `no answer within ${patience / 1000} s` : err.name === "TypeError" ? "no connection" : err.message;
  setText(node, `The server is not answering (${why}). ` +
    (lastGood ? `What you see is from ${clock(lastGood)}. ` : "Nothing has been received yet. ") + "This page keeps trying; nothing has to be done here.");
  node.hidden = false;
}

async function loop() {
  for (;;) {
    const began = performance.now();
    if (!document.hidden) {
      try {
        await round();
        arrived();
      } catch (err) {
        away(err);
      }
    }
    // A server that is away is asked less and less often, and one with so many
    // classes that an answer takes long is left alone for four times as long.
    const took = performance.now() - began;
    await Promise.race([pause(Math.max(Math.min(10000, every * (1 + failures)), failures ? 0 : 4 * took)), shownAgain()]);
  }
}

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

function shownAgain() {
  return new Promise((done) => document.addEventListener("visibilitychange", () => { if (!document.hidden) done(); }, { once: true }));
}

startExplain(document.getElementById("explain"), document.getElementById("explain-result"), (stream, name) => streams.find(stream, name));
loop();
