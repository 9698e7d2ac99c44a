// Curves as SVG: a few hundred points each, a line of figures under the pointer.

import { h, s, replace } from "./dom.js";
import { num, round } from "./format.js";

const LEFT = 44, RIGHT = 10, TOP = 8, BOTTOM = 20;

// series: [{name, colour (1..13), points: [[x, y]], dots: bool}]; with bars, one stack of them at each x, and sums in the legend.
export function chart(title, series, { height = 150, format = num, axis = format === num ? round : format, least = null, most = null, x = "step", legend: wanted = true, bars = false } = {}) {
  const shown = series.map((one) => ({ ...one, points: one.points.filter(([, y]) => typeof y === "number") }))
    .filter((one) => one.points.length);
  const legend = h("div", { class: "legend" }, !wanted ? null : shown.map((one) =>
    h("span", { class: `key c${one.colour}${one.dots ? " dot" : ""}` }, one.name, h("b", {}, format(bars ? one.points.reduce((sum, [, y]) => sum + y, 0) : one.points.at(-1)[1])))));
  const plot = h("div", { class: "plot" });
  const figure = h("figure", { class: "chart" }, h("figcaption", {}, title, legend), plot);
  if (!shown.length) {
    plot.append(h("p", { class: "none" }, "no figures yet"));
    return figure;
  }
  const watcher = new ResizeObserver(() => draw(plot, shown, plot.clientWidth, height, { format, axis, least, most, x, title, bars }));
  watcher.observe(plot);
  return figure;
}

function draw(plot, series, width, height, { format, axis, least, most, x: xName, title, bars }) {
  if (width < 80) return;
  const all = series.flatMap((one) => one.points);
  const ends = range(all.map(([x]) => x));
  const xs = bars ? [ends[0] - 0.5, ends[1] + 0.5] : ends;
  const ys = rounded(range(bars ? sums(series) : all.map(([, y]) => y), least, most));
  const px = (x) => LEFT + ((x - xs[0]) / (xs[1] - xs[0] || 1)) * (width - LEFT - RIGHT);
  const py = (y) => TOP + (1 - (y - ys[0]) / (ys[1] - ys[0] || 1)) * (height - TOP - BOTTOM);
  const image = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(title, series, format) });
  for (const y of ticks(ys[0], ys[1], 3)) {
    image.append(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(y), y2: py(y) }),
      s("text", { class: "tick", x: LEFT - 6, y: py(y) + 3.5, "text-anchor": "end" }, axis(y)));
  }
  for (const x of ticks(xs[0], xs[1], Math.max(2, Math.floor(width / 90))).filter(Number.isInteger)) {
    image.append(s("text", { class: "tick", x: px(x), y: height - 5, "text-anchor": "middle" }, num(x)));
  }
  if (bars) drawBars(image, series, px, py, (width - LEFT - RIGHT) / (xs[1] - xs[0]));
  else for (const one of series) {
    const dots = one.dots || one.points.length === 1;
    if (one.points.length > 1) {
      const path = thin(one.points, width).map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");
      image.append(s("path", { class: `line c${one.colour}${one.dots ? " dashed" : ""}`, d: path }));
    }
    if (dots) for (const [x, y] of one.points) image.append(s("circle", { class: `mark c${one.colour}`, cx: px(x), cy: py(y), r: 3 }));
  }
  const cursor = s("line", { class: "cursor", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  image.append(cursor);
  const tip = h("div", { class: "tip", hidden: true });
  replace(plot, image, tip);
  plot.onpointermove = (event) => point(event, plot, cursor, tip, series, xs, px, width, format, xName);
  plot.onpointerleave = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };
}

function drawBars(image, series, px, py, room) {
  const base = new Map();
  const wide = Math.max(1, Math.min(14, room * 0.8));
  for (const one of series) for (const [x, y] of one.points) {
    const from = base.get(x) ?? 0;
    base.set(x, from + y);
    if (y > 0) image.append(s("rect", { class: `fill c${one.colour}`, x: (px(x) - wide / 2).toFixed(1), width: wide.toFixed(1), y: py(from + y).toFixed(1), height: (py(from) - py(from + y)).toFixed(1) }));
  }
}

function sums(series) {
  const found = new Map();
  for (const one of series) for (const [x, y] of one.points) found.set(x, (found.get(x) ?? 0) + y);
  return [...found.values()];
}

function point(event, plot, cursor, tip, series, xs, px, width, format, xName) {
  const at = event.clientX - plot.getBoundingClientRect().left;
  const wanted = xs[0] + ((at - LEFT) / (width - LEFT - RIGHT)) * (xs[1] - xs[0]);
  const nearest = (points) => points.reduce((a, b) => (Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a));
  const x = nearest(series.flatMap((one) => one.points))[0];
  const rows = series.map((one) => [one, nearest(one.points)]).filter(([, p]) => p[0] === x);
  replace(tip, h("div", { class: "muted" }, `${xName} ${num(x)}`),
    rows.filter(([, p]) => p[1] !== 0 || rows.length < 4).map(([one, p]) => h("div", { class: `key c${one.colour}` }, one.name, h("b", {}, format(p[1])))));
  tip.hidden = false;
  cursor.setAttribute("x1", px(x));
  cursor.setAttribute("x2", px(x));
  cursor.setAttribute("visibility", "visible");
  const left = px(x) + 12 + tip.offsetWidth > width ? px(x) - 12 - tip.offsetWidth : px(x) + 12;
  tip.style.setProperty("left", `${left}px`);
}

function describe(title, series, format) {
  return `${title}: ` + series.map((one) => `${one.name} from ${format(one.points[0][1])} to ${format(one.points.at(-1)[1])}`).join("; ");
}

// Keeps the lowest and the highest of each column of pixels, so that no spike is lost.
function thin(points, width) {
  const columns = Math.max(50, Math.floor(width / 2));
  if (points.length <= columns * 2) return points;
  const out = [];
  const size = points.length / columns;
  for (let i = 0; i < columns; i++) {
    const part = points.slice(Math.floor(i * size), Math.floor((i + 1) * size));
    const low = part.reduce((a, b) => (b[1] < a[1] ? b : a));
    const high = part.reduce((a, b) => (b[1] > a[1] ? b : a));
    out.push(...(low[0] < high[0] ? [low, high] : low === high ? [low] : [high, low]));
  }
  return out;
}

function range(values, least = null, most = null) {
  let low = values.reduce((a, b) => Math.min(a, b), Infinity);
  let high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (least !== null) low = Math.min(low, least);
  if (most !== null) high = Math.max(high, most);
  if (low === high) { high = low + (Math.abs(low) || 1); }
  return [low, high];
}

// Up to the next line of the grid, so that the highest point can be read off.
function rounded([low, high]) {
  const step = stride(low, high, 3);
  return [low, Math.ceil(high / step - 1e-9) * step];
}

function stride(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= raw * (1 - 1e-9)) ?? raw;
}

function ticks(low, high, wanted) {
  const step = stride(low, high, wanted);
  const out = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) out.push(Number(at.toPrecision(12)));
  return out;
}

export function spark(values, width = 96, height = 20) {
  const points = values.map((y, x) => [x, y]).filter(([, y]) => typeof y === "number");
  if (points.length < 2) return h("span", { class: "muted" }, "–");
  const [low, high] = range(points.map(([, y]) => y));
  const path = thin(points, width).map(([x, y], i) =>
    `${i ? "L" : "M"}${(1 + (x / (values.length - 1)) * (width - 2)).toFixed(1)} ${(height - 2 - ((y - low) / (high - low)) * (height - 4)).toFixed(1)}`).join("");
  return s("svg", { class: "spark", width, height, "aria-hidden": "true" }, s("path", { class: "line c1", d: path }));
}

// parts: [{name, value, colour, text}]; widths are shares of the sum.
export function stack(parts, label) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  return h("div", { class: "stack", role: "img", "aria-label": label }, parts.filter((part) => part.value > 0).map((part) =>
    h("span", { class: `fill c${part.colour}`, title: `${part.name}: ${part.text}`, style: { "flex-grow": String(part.value / total) } })));
}
