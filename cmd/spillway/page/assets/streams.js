// The classes of each stream: what they may spend, what they do spend.

import { el, setText, setAttr, number, bar } from "./dom.js";
import { recent } from "./history.js";
import { Sparkline } from "./sparkline.js";

const mostRows = 200;
const names = ["metrics", "logs", "traces", "events", "rum"];
const columns = ["Class", "Admitted/s", "Dropped/s", "Limit/s", "Tokens", "Last 15 minutes", "Since start"];

export class Streams {
  constructor(root, quiet) {
    this.root = root;
    this.quiet = quiet;
    this.tables = new Map();
    this.number = number;
  }

  // find returns what is known of a class, or undefined.
  find(stream, name) {
    return this.tables.get(stream)?.classes.find((c) => c.name === name);
  }

  // show updates everything and returns the classes that drop, most first.
  show(status, history) {
    const quiet = [];
    const dropping = [];
    const order = Object.keys(status.streams).sort((a, b) => names.indexOf(a) - names.indexOf(b));
    for (const name of order) {
      const s = status.streams[name];
      if (!s.limited && s.received === 0) {
        quiet.push(name);
        this.tables.get(name)?.node.remove();
        this.tables.delete(name);
        continue;
      }
      if (!this.tables.has(name)) {
        const table = new StreamTable(name);
        this.tables.set(name, table);
        const next = order.slice(order.indexOf(name) + 1).map((n) => this.tables.get(n)?.node).find(Boolean);
        this.root.insertBefore(table.node, next ?? null);
      }
      dropping.push(...this.tables.get(name).show(s, history));
    }
    this.quiet.hidden = quiet.length === 0;
    setText(this.quiet, quiet.length ? `No policy and nothing received: ${quiet.join(", ")}.` : "");
    return dropping.sort((a, b) => b.rate - a.rate);
  }
}

class StreamTable {
  constructor(name) {
    this.name = name;
    this.rows = new Map();
    this.facts = el("p", { class: "facts" });
    this.filter = el("input", { type: "search", id: `filter-${name}`, placeholder: "Filter classes", "aria-label": `Filter the classes of ${name}`, on: { input: () => this.arrange() } });
    this.body = el("tbody", { role: "rowgroup" });
    this.more = el("p", { class: "hint", hidden: true });
    this.node = el("section", { class: "card stream-card", "aria-labelledby": `stream-${name}` },
      el("div", { class: "card-head" }, el("h2", { id: `stream-${name}`, text: name }), this.facts, this.filter),
      // Rows become cards on narrow screens; the roles keep the table a table there.
      el("table", { role: "table" },
        el("caption", { class: "unseen", text: `Classes of the stream ${name}` }),
        el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...columns.map((c, i) => el("th", { scope: "col", role: "columnheader", class: `c${i}`, text: c })))),
        this.body),
      this.more);
    this.classes = [];
  }

  show(s, history) {
    const relabelled = s.dropped_relabel ? ` · ${number(s.dropped_relabel)} dropped by relabel rules` : "";
    const cap = s.limited ? `cap ${number(s.rate ?? 0)} items/s, burst ${number(s.burst ?? 0)}, over ${s.ingesters} ingester${s.ingesters === 1 ? "" : "s"} · ` : "no policy: not limited · ";
    setText(this.facts, `${cap}${number(s.received)} received · ${number(s.exempt)} exempt · ${number(s.invalid)} invalid${relabelled}`);
    this.classes = s.classes.map((c) => describe(c, history.class(this.name, c.name), history));
    const known = new Set(s.classes.map((c) => c.name));
    for (const [name, row] of this.rows) {
      if (!known.has(name)) {
        row.node.remove();
        this.rows.delete(name);
      }
    }
    this.arrange();
    return this.classes.filter((c) => c.dropping).map((c) => ({ stream: this.name, name: c.name, rate: c.dropped, why: c.why, id: rowID(this.name, c.name) }));
  }

  // arrange shows the classes in the order of the policy; where they are too many
  // for one look, those that drop come first.
  arrange() {
    const wanted = this.filter.value.trim().toLowerCase();
    this.filter.hidden = this.classes.length <= 12;
    let shown = this.classes.filter((c) => c.name.toLowerCase().includes(wanted));
    const found = shown.length;
    if (found > mostRows) shown = [...shown].sort((a, b) => b.dropped - a.dropped || b.admitted - a.admitted).slice(0, mostRows);
    const visible = new Set(shown.map((c) => c.name));
    for (const [name, row] of this.rows) if (!visible.has(name)) { row.node.remove(); this.rows.delete(name); }
    shown.forEach((c, i) => {
      let row = this.rows.get(c.name);
      if (!row) {
        row = new Row(this.name, c.name);
        this.rows.set(c.name, row);
      }
      if (this.body.children[i] !== row.node) this.body.insertBefore(row.node, this.body.children[i] ?? null);
      row.show(c);
    });
    this.more.hidden = found <= shown.length;
    setText(this.more, `${number(shown.length)} of ${number(found)} classes, those that drop most first. Filter to see others.`);
  }
}

function rowID(stream, name) {
  return `class-${stream}-${name}`;
}

// describe works out what a class does now, and why it drops.
function describe(c, points, history) {
  const admitted = recent(points?.admitted, history);
  const dropped = recent(points?.dropped, history);
  const offered = admitted + dropped;
  const d = { ...c, points, window: history.window(), admitted, dropped, dropping: dropped > 0, total: { admitted: c.admitted, dropped: c.dropped, refused: c.refused }, badge: "", why: "" };
  if (!c.configured) {
    d.badge = "unconfigured";
    d.why = "A rule names this class, but the policy does not define it: everything is dropped. Define it, or correct the rule.";
  } else if (c.limited && c.rate === 0) {
    d.badge = "rate 0";
    d.why = "Its rate is 0: everything is dropped.";
  } else if (d.dropping && offered > c.rate_per_ingester) {
    d.why = `It is sent ${number(offered)} items/s and may spend ${number(c.rate_per_ingester)} items/s here.`;
  } else if (d.dropping) {
    d.why = `It is sent ${number(offered)} items/s, within its rate, but more at once than its burst of ${number(c.burst_per_ingester)} holds.`;
  }
  if (!c.limited) d.badge = "not limited";
  d.state = d.dropping ? "bad" : d.badge === "unconfigured" || d.badge === "rate 0" ? "warn" : "good";
  return d;
}

class Row {
  constructor(stream, name) {
    this.badge = el("span", { class: "badge", hidden: true });
    this.status = el("span", { class: "badge bad", hidden: true, text: "dropping" });
    this.why = el("p", { class: "why", hidden: true });
    this.bar = bar();
    this.tokens = el("span", { class: "level" });
    this.spark = new Sparkline();
    this.number = [1, 2, 3].map((i) => el("td", { role: "cell", class: `num c${i}`, "data-label": columns[i] }));
    this.level = el("td", { role: "cell", class: "c4", "data-label": columns[4] }, this.bar.node, this.tokens);
    this.total = el("td", { role: "cell", class: "c6 total", "data-label": columns[6] });
    this.node = el("tr", { role: "row", id: rowID(stream, name), tabindex: "-1" },
      el("th", { scope: "row", role: "rowheader", class: "c0" }, el("span", { class: "name", text: name }), this.status, this.badge, this.why),
      ...this.number, this.level,
      el("td", { role: "cell", class: "c5", "data-label": columns[5] }, this.spark.node),
      this.total);
  }

  show(c) {
    this.node.dataset.state = c.state;
    this.status.hidden = !c.dropping;
    this.badge.hidden = !c.badge;
    setText(this.badge, c.badge);
    this.badge.dataset.kind = c.badge === "not limited" ? "plain" : "warn";
    this.why.hidden = !c.why;
    setText(this.why, c.why);
    setText(this.number[0], number(c.admitted));
    setText(this.number[1], number(c.dropped));
    setText(this.number[2], c.limited ? number(c.rate_per_ingester) : "none");
    this.showTokens(c);
    this.spark.show(c.points, c.window, c.limited ? c.rate_per_ingester : 0);
    const refused = c.total.refused ? `,\n${number(c.total.refused)} refused` : "";
    setText(this.total, `${number(c.total.admitted)} admitted,\n${number(c.total.dropped)} dropped${refused}`);
  }

  showTokens(c) {
    setAttr(this.bar.node, "hidden", c.tokens === null ? "" : null);
    if (c.tokens === null) {
      setText(this.tokens, c.limited ? "no bucket" : "no bucket needed");
      return;
    }
    this.bar.set(c.tokens / c.burst_per_ingester);
    this.bar.node.dataset.low = c.tokens < Math.max(1, c.burst_per_ingester * 0.1);
    setText(this.tokens, `${number(c.tokens >= 100 ? Math.floor(c.tokens) : Math.floor(c.tokens * 10) / 10)} of ${number(c.burst_per_ingester)}`);
  }
}
