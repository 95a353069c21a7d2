// The only way in which this page makes elements. Text is always a text node, so
// nothing that a sender or a policy wrote can become markup.

const svgNames = new Set(["svg", "path", "rect", "line", "circle", "title", "g"]);

// el makes an element. props: class, text, data (an object), on (event: function),
// and everything else as attributes; a value of null or false is left out.
export function el(name, props = {}, ...children) {
  const node = svgNames.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = value;
    else if (key === "data") for (const [k, v] of Object.entries(value)) node.dataset[k] = v;
    else if (key === "on") for (const [k, v] of Object.entries(value)) node.addEventListener(k, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// setText writes only what has changed, so that a screen reader is not told the
// same thing again and a selection is not lost.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttr(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// number writes counts and rates for people: 0, 0.35, 12.5, 9,875, 1.24 M.
export function number(x) {
  const a = Math.abs(x);
  if (a >= 1e12) return trim(x / 1e12) + " T";
  if (a >= 1e9) return trim(x / 1e9) + " G";
  if (a >= 1e6) return trim(x / 1e6) + " M";
  if (a >= 100 || Number.isInteger(x)) return Math.round(x).toLocaleString("en");
  if (a >= 10) return x.toLocaleString("en", { maximumFractionDigits: 1 });
  return x.toLocaleString("en", { maximumFractionDigits: a >= 0.01 ? 2 : 4 });
}

function trim(x) {
  return x.toLocaleString("en", { maximumFractionDigits: 2 });
}

export function seconds(s) {
  if (s === 0) return "0 s";
  if (s < 1) return number(Math.round(s * 1e5) / 100) + " ms";
  return number(Math.round(s * 100) / 100) + " s";
}

// bar is a level between 0 and 1 as a picture; the text beside it says the same.
export function bar() {
  const fill = el("rect", { class: "fill", height: "8", width: "0" });
  const svg = el("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    el("rect", { class: "trough", width: "100", height: "8" }), fill);
  return {
    node: svg,
    set(part) { setAttr(fill, "width", Math.max(0, Math.min(100, part * 100)).toFixed(1)); },
  };
}
