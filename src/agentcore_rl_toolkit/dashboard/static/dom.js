// Elements from plain values. Text becomes text nodes, never markup: what agents write is data.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, ...children);
  return element;
}

export function put(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return put(element, ...children);
}

// The same with newer content: what was opened stays open, what was scrolled to stays in sight.
export function refresh(element, ...children) {
  const kept = ["details", ".scroll"].map((kind) => [...element.querySelectorAll(kind)].map((one) => [one.open, one.scrollTop]));
  replace(element, ...children);
  ["details", ".scroll"].forEach((kind, k) => element.querySelectorAll(kind).forEach((one, i) => {
    if (!kept[k][i]) return;
    if (kind === "details") one.open = kept[k][i][0]; else one.scrollTop = kept[k][i][1];
  }));
  return element;
}

// Lines of a table: the keys' line and the focus stay where they were.
export function replaceRows(body, rows) {
  const marked = body.querySelector("tr.cursor")?.dataset.href;
  const focus = body.contains(document.activeElement) ? document.activeElement : null;
  const named = focus && (focus.getAttribute("aria-label") ?? focus.getAttribute("href"));
  replace(body, rows);
  if (marked) [...body.rows].find((row) => row.dataset.href === marked)?.classList.add("cursor");
  if (named) [...body.querySelectorAll("a, input")].find((one) => named === (one.getAttribute("aria-label") ?? one.getAttribute("href")))?.focus({ preventScroll: true });
}

// Twice: what comes into sight on the way may turn out higher than it was taken for.
export function toSight(element) {
  element?.scrollIntoView({ block: "start" });
  requestAnimationFrame(() => element?.scrollIntoView({ block: "start" }));
}

export function pill(text, kind = "") {
  return h("span", { class: `pill ${kind}` }, text);
}

// How far: a thin line, for eyes only, beside the figures that say it.
export function meter(share, kind = "") {
  return h("span", { class: "meter", "aria-hidden": "true" }, h("span", { class: `done ${kind}`, style: { width: `${(100 * Math.max(0, Math.min(1, share || 0))).toFixed(1)}%` } }));
}

export function section(title, aside, ...children) {
  return h("section", {}, h("div", { class: "bar" }, h("h2", {}, title), h("div", { class: "grow" }), aside), children);
}

export function copyButton(text, label = "copy") {
  const button = h("button", { type: "button", class: "small", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      button.textContent = "select and copy";
    }
  } }, label);
  return button;
}
