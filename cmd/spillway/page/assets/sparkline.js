// A curve of 15 minutes: admitted below, dropped on top of it, the limit dashed.

import { el, setText, setAttr, number } from "./dom.js";

const width = 180;
const height = 36;

export class Sparkline {
  constructor() {
    this.title = el("title");
    this.admitted = el("path", { class: "admitted" });
    this.dropped = el("path", { class: "dropped" });
    this.limit = el("line", { class: "limit", x1: 0, x2: width, y1: -1, y2: -1 });
    this.node = el("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" },
      this.title, el("line", { class: "floor", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }), this.admitted, this.dropped, this.limit);
  }

  show(points, window, limit) {
    if (!points) {
      setAttr(this.admitted, "d", "");
      setAttr(this.dropped, "d", "");
      setAttr(this.limit, "y1", -1);
      setAttr(this.limit, "y2", -1);
      setText(this.title, "Nothing in the last 15 minutes");
      return;
    }
    const admitted = points.admitted.slice(-window);
    const dropped = points.dropped.slice(-window);
    const total = admitted.map((a, i) => a + dropped[i]);
    const peak = Math.max(...total);
    const top = Math.max(peak, Math.min(limit, peak * 2), 1e-9) * 1.05;
    setAttr(this.admitted, "d", area(admitted, null, top));
    setAttr(this.dropped, "d", area(total, admitted, top, dropped));
    const y = limit > 0 && limit <= top ? height - (limit / top) * height : -1;
    setAttr(this.limit, "y1", y.toFixed(1));
    setAttr(this.limit, "y2", y.toFixed(1));
    setText(this.title, `Last 15 minutes: admitted up to ${number(Math.max(...admitted))}, dropped up to ${number(Math.max(...dropped))} items/s`);
  }
}

// area draws between two curves, and nothing where there is nothing to show.
function area(upper, lower, top, shown) {
  const n = upper.length;
  const x = (i) => ((i + 0.5) * width / n).toFixed(1);
  const y = (v) => (height - (v / top) * height).toFixed(1);
  const parts = [];
  for (let i = 0; i < n; i++) {
    const visible = (shown ?? upper);
    if (!(visible[i] > 0)) continue;
    let end = i;
    while (end + 1 < n && visible[end + 1] > 0) end++;
    const left = Math.max(0, i - 1), right = Math.min(n - 1, end + 1);
    let d = `M${x(left)},${y(lower ? lower[left] : 0)}`;
    for (let k = i; k <= end; k++) d += `L${x(k)},${y(upper[k])}`;
    d += `L${x(right)},${y(lower ? lower[right] : 0)}`;
    if (lower) for (let k = end; k >= i; k--) d += `L${x(k)},${y(lower[k])}`;
    parts.push(d + "Z");
    i = end;
  }
  return parts.join("");
}
