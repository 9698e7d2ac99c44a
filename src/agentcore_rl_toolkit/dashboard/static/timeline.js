// Rollouts of one step as bars over time, one colour a stage: where the time goes, at a glance.

import { get, runPath } from "./api.js";
import { h, replace, s } from "./dom.js";
import { num, seconds, STAGE_COLOURS, STAGE_NAMES, STAGES } from "./format.js";

const LEFT = 8, TOP = 18, MARK = 8;

export function timeline(run) {
  const plot = h("div", { class: "timeline" });
  const legend = h("div", { class: "legend" });
  const element = h("div", {}, legend, plot);
  const choose = h("select", { "aria-label": "Step of the time line", onchange: () => load(choose.value) });
  let data = null;
  let wanted = "";
  async function load(value = wanted) {
    wanted = value;
    const [phase, step] = value ? value.split(" ") : ["", ""];
    data = await get(runPath(run, "timeline"), { phase, step });
    const now = `${data.phase} ${data.step}`;
    // a list that is open stays open while nothing is new
    if (choose.options.length !== data.steps.length || choose.value !== now) replace(choose, data.steps.map((one) => h("option", { value: `${one.phase} ${one.step}`, selected: `${one.phase} ${one.step}` === now }, `${one.phase} ${one.step}`)));
    replace(legend, STAGES.map((name) => h("span", { class: `key c${STAGE_COLOURS[name]}` }, STAGE_NAMES[name])),
      data.rollouts.some((one) => one.failure) ? h("span", { class: "key failed" }, "failed") : null,
      data.total > data.rollouts.length ? h("span", { class: "muted" }, `first ${num(data.rollouts.length)} of ${num(data.total)}`) : null);
    draw(plot, run, data);
  }
  new ResizeObserver(() => data && draw(plot, run, data)).observe(plot);
  return { element, choose, load };
}

function draw(element, run, data) {
  const width = element.clientWidth;
  if (width < 100) return;
  const rows = data.rollouts;
  if (!rows.length) { replace(element, h("p", { class: "none" }, "no rollouts yet")); return; }
  const begin = Math.min(...rows.map((one) => one.begin));
  const end = Math.max(...rows.map((one) => one.at));
  const thick = rows.length <= 24 ? 10 : rows.length <= 64 ? 5 : 3;
  const gap = thick > 3 ? 1 : 0;
  const height = TOP + rows.length * (thick + gap) + 4;
  const px = (at) => LEFT + ((at - begin) / (end - begin || 1)) * (width - 2 * LEFT - MARK);
  const image = s("svg", { width, height, role: "img", "aria-label": `${rows.length} rollouts of ${data.phase} ${data.step}, ${seconds(end - begin)} from first to last` });
  for (let i = 0; i <= 4; i++) {
    const at = begin + ((end - begin) * i) / 4;
    image.append(s("line", { class: "grid", x1: px(at), x2: px(at), y1: TOP - 4, y2: height }),
      s("text", { class: "tick", x: px(at), y: 10, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, seconds(at - begin)));
  }
  rows.forEach((one, i) => image.append(bar(run, one, TOP + i * (thick + gap), thick, px)));
  replace(element, image);
}

function bar(run, one, y, thick, px) {
  const link = s("a", { href: `#/run/${encodeURIComponent(run)}/rollout/${one.n}`, tabindex: -1 });
  link.append(s("title", {}, `${one.rollout_id}\n${one.failure ? `${one.failure}: ${one.error ?? ""}\n` : ""}` + STAGES.map((name) => `${STAGE_NAMES[name]} ${seconds(one.timings[name] ?? 0)}`).join("\n")));
  let at = one.begin;
  STAGES.forEach((name) => {
    const long = one.timings[name] ?? 0;
    if (long > 0) link.append(s("rect", { class: `fill c${STAGE_COLOURS[name]}`, x: px(at).toFixed(1), width: Math.max(0.5, px(at + long) - px(at)).toFixed(1), y, height: thick }));
    at += long;
  });
  if (one.failure) link.append(s("rect", { class: "fill bad", x: px(at).toFixed(1), width: MARK, y, height: thick }));
  return link;
}
