// Curves as SVG: a few hundred points each. The pointer marks one step in all charts of a page, and
// their legends say what was measured there.

import { h, s, replace } from "./dom.js";
import { num, round } from "./format.js";

const LEFT = 44, RIGHT = 10, TOP = 8, BOTTOM = 20;
const MANY = 16;

// series: [{name, colour (1..13), points: [[x, y]], dots: bool}]; with bars, one stack of them at each x, and sums in the legend.
export function chart(title, series, { height = 150, format = num, axis = format === num ? round : format, least = null, most = null, x = "step", legend: wanted = true, bars = false, raw = false, pick = null } = {}) {
  const shown = series.map((one) => ({ ...one, points: one.points.filter(([, y]) => typeof y === "number") }))
    .filter((one) => one.points.length);
  for (const one of shown) {
    one.latest = format(bars ? one.points.reduce((sum, [, y]) => sum + y, 0) : one.points.at(-1)[1]);
    one.figure = h("b", {}, one.latest);
  }
  const legend = h("div", { class: "legend" }, !wanted ? null : shown.map((one) => h("span", { class: `key c${one.colour}${one.dots ? " dot" : ""}` }, one.name, one.figure)));
  const plot = h("div", { class: "plot" });
  const figure = h("figure", { class: "chart" }, h("figcaption", {}, title, legend), plot);
  if (!shown.length) {
    plot.append(h("p", { class: "none" }, "no figures yet"));
    return figure;
  }
  const watcher = new ResizeObserver(() => draw(plot, shown, plot.clientWidth, height, { format, axis, least, most, x, title, bars, raw, pick }));
  watcher.observe(plot);
  return figure;
}

function draw(plot, series, width, height, { format, axis, least, most, x: xName, title, bars, raw, pick }) {
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
      const path = (points) => thin(points, width).map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");
      const many = !raw && !one.dots && one.points.length > MANY;
      image.append(s("path", { class: `line c${one.colour}${one.dots ? " dashed" : many ? " faint" : ""}`, d: path(one.points) }));
      if (many) image.append(s("path", { class: `line c${one.colour}`, d: path(smooth(one.points)) }));
    }
    if (dots) for (const [x, y] of one.points) image.append(s("circle", { class: `mark c${one.colour}`, cx: px(x), cy: py(y), r: 3 }));
  }
  const cursor = s("line", { class: "cursor", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  image.append(cursor);
  const tip = h("div", { class: "tip", hidden: true });
  replace(plot, image, tip);
  plot.mark = (x) => {
    const inside = x !== null && x >= xs[0] && x <= xs[1];
    cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    if (inside) for (const end of ["x1", "x2"]) cursor.setAttribute(end, px(x));
    for (const one of series) one.figure.textContent = inside ? figureAt(one, x, format, bars) : one.latest;
  };
  const beside = () => plot.closest(".charts")?.querySelectorAll(".plot") ?? [plot];
  const at = (event) => nearest(series.flatMap((one) => one.points), xs[0] + ((event.clientX - plot.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT)) * (xs[1] - xs[0]))[0];
  plot.onpointermove = (event) => {
    const x = at(event);
    for (const other of beside()) other.mark?.(x);
    explain(tip, series, x, px, width, format, xName, pick);
  };
  plot.onpointerleave = () => { tip.hidden = true; for (const other of beside()) other.mark?.(null); };
  plot.onclick = pick ? (event) => pick(at(event)) : null;
  plot.classList.toggle("pick", pick !== null);
}

function nearest(points, wanted) {
  return points.reduce((a, b) => (Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a));
}

function figureAt(one, x, format, bars) {
  const found = one.points.find((point) => point[0] === x);
  return found ? format(found[1]) : bars ? format(0) : "–";
}

// Each point with its neighbours, so that a trend is seen through the noise of single steps.
function smooth(points) {
  const reach = Math.max(2, Math.round(points.length / 24));
  return points.map(([x], i) => {
    const near = points.slice(Math.max(0, i - reach), i + reach + 1);
    return [x, near.reduce((sum, [, y]) => sum + y, 0) / near.length];
  });
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

function explain(tip, series, x, px, width, format, xName, pick) {
  const rows = series.map((one) => [one, nearest(one.points, x)]).filter(([, p]) => p[0] === x);
  replace(tip, h("div", { class: "muted" }, `${xName} ${num(x)}`),
    rows.filter(([, p]) => p[1] !== 0 || rows.length < 4).map(([one, p]) => h("div", { class: `key c${one.colour}` }, one.name, h("b", {}, format(p[1])))),
    pick ? h("div", { class: "muted" }, "click: its rollouts") : null);
  tip.hidden = false;
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

export function spark(values, width = 110, height = 24) {
  const points = values.map((y, x) => [x, y]).filter(([, y]) => typeof y === "number");
  if (points.length < 2) return h("span", { class: "muted" }, "–");
  const [low, high] = range(points.map(([, y]) => y));
  const px = (x) => (3 + (x / (values.length - 1)) * (width - 6)).toFixed(1);
  const py = (y) => (height - 3 - ((y - low) / (high - low)) * (height - 6)).toFixed(1);
  const curve = (some) => thin(some, width).map(([x, y], i) => `${i ? "L" : "M"}${px(x)} ${py(y)}`).join("");
  const [x, y] = points.at(-1);
  const path = curve(points.length > MANY ? smooth(points) : points);
  return s("svg", { class: "spark c1", width, height, "aria-hidden": "true" }, s("path", { class: "area", d: `${path}L${px(x)} ${height}L${px(points[0][0])} ${height}Z` }),
    s("path", { class: "line", d: path }), s("circle", { class: "mark", cx: px(x), cy: py(y), r: 2.5 }));
}

// parts: [{name, value, colour, text}]; widths are shares of the sum.
export function stack(parts, label) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  return h("div", { class: "stack", role: "img", "aria-label": label }, parts.filter((part) => part.value > 0).map((part) =>
    h("span", { class: `fill c${part.colour}`, title: `${part.name}: ${part.text}`, style: { "flex-grow": String(part.value / total) } })));
}
