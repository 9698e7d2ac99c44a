// A whole row at a glance, in the colours of its tokens: pointing explains, a click leads there.

import { h } from "./dom.js";

const HEIGHT = 24, CONTEXT = 5;

// mark(i) is {name, weight} of a trained token, null of context: of those that share a column of
// pixels the weightiest is shown. looks: an element below which the classes have their colours.
export function strip(n, mark, looks, { point, go }) {
  const canvas = h("canvas", { class: "strip", role: "img", "aria-label": `${n} tokens from first to last, coloured as below` });
  let at = -1;
  let columns = [];
  const place = (event) => columns[Math.floor((event.offsetX / canvas.clientWidth) * columns.length)]?.i;
  const draw = () => {
    const room = Math.min(n, canvas.clientWidth);
    if (!room) return;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(HEIGHT * scale);
    columns = coloured(choose(n, room, mark), mark, looks);
    paint(canvas, columns, at / n);
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas);
  canvas.addEventListener("pointermove", (event) => { const i = place(event); if (i !== undefined) point(i); });
  canvas.addEventListener("click", (event) => { const i = place(event); if (i !== undefined) go(i); });
  return { element: canvas, draw, show: (i) => { at = i; paint(canvas, columns, at / n); }, stop: () => dark.removeEventListener("change", draw) };
}

function choose(n, columns, mark) {
  const out = [];
  for (let column = 0; column < columns; column++) {
    const end = Math.max(Math.floor(((column + 1) * n) / columns), Math.floor((column * n) / columns) + 1);
    let best = Math.floor((column * n) / columns);
    let weight = mark(best)?.weight ?? -Infinity;
    for (let i = best + 1; i < end; i++) {
      const found = mark(i);
      if (found && found.weight > weight) { best = i; weight = found.weight; }
    }
    out.push(best);
  }
  return out;
}

// With the colours that the style sheet gives them now, light or dark.
function coloured(places, mark, looks) {
  const known = new Map();
  const probe = h("span", { class: "t" });
  looks.append(probe);
  const style = getComputedStyle(probe);
  const root = getComputedStyle(document.documentElement);
  const of = (name) => {
    if (!known.has(name)) { probe.className = `t on ${name}`; known.set(name, style.backgroundColor); }
    return known.get(name);
  };
  const out = places.map((i) => {
    const found = mark(i);
    return { i, high: found ? HEIGHT : CONTEXT, fills: found ? [root.getPropertyValue("--base"), of(found.name)] : [root.getPropertyValue("--line")] };
  });
  probe.remove();
  return out;
}

function paint(canvas, columns, cursor) {
  const pen = canvas.getContext("2d");
  const wide = canvas.width / columns.length;
  const gap = wide > 4 ? 1 : 0;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  columns.forEach(({ high, fills }, column) => {
    const tall = (high / HEIGHT) * canvas.height;
    for (const fill of fills) {
      pen.fillStyle = fill;
      pen.fillRect(column * wide, canvas.height - tall, wide - gap, tall);
    }
  });
  if (cursor >= 0) {
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    pen.fillRect(Math.floor(cursor * columns.length) * wide + wide / 2 - 1, 0, 2, canvas.height);
  }
}
