// All runs: a list to search, and the curves of those that are ticked, side by side.

import { get, runPath, watch } from "./api.js";
import { chart, spark } from "./chart.js";
import { h, meter, pill, put, replace, replaceRows, section } from "./dom.js";
import { fixed, num, percent, when } from "./format.js";

const CURVES = [
  ["reward", (m) => m.reward], ["success", (m) => m.success],
  ["tokens a rollout", (m) => m.rollouts ? m.tokens / m.rollouts : null],
  ["tokens a second", (m) => m.tokens_per_s], ["staleness, steps", (m) => m.staleness],
];

export async function runsView(view, { query, leave, status }) {
  let { base, runs, seen } = await get("runs");
  const chosen = new Set((query.get("compare") ?? "").split(",").filter((name) => runs.some((run) => run.name === name)));
  const search = h("input", { type: "search", placeholder: "filter runs", "aria-label": "Filter runs", id: "filter" });
  const body = h("tbody");
  const charts = h("div");
  const draw = () => {
    const text = search.value.toLowerCase();
    const found = runs.filter((run) => `${run.name} ${run.model} ${run.agent}`.toLowerCase().includes(text));
    replaceRows(body, found.map((run) => line(run, chosen, () => { draw(); compare(charts, [...chosen], runs.length > 1); })));
    if (!found.length) put(body, h("tr", {}, h("td", { colspan: 10, class: "none" }, runs.length ? "no run matches" : `no runs below ${base}: start one with art train`)));
  };
  search.addEventListener("input", draw);
  const heads = [["", ""], ["run", ""], ["state", ""], ["started", "wide"], ["step", "n"], ["rollouts", "n wide"], ["reward", "n wide"], ["", "wide"], ["held-out success", ""], ["agent, model", "wide"]];
  put(view, h("h1", { class: "hidden" }, "Runs"),
    section("All runs", search, h("div", { class: "scroll" }, h("table", { class: "list" },
      h("thead", {}, h("tr", {}, heads.map(([name, kind]) => h("th", { class: kind, scope: "col" }, name)))), body))),
    charts);
  draw();
  await compare(charts, [...chosen], runs.length > 1);
  leave(watch("events", seen, async () => {
    ({ base, runs } = await get("runs"));
    draw();
    if (chosen.size > 1) await compare(charts, [...chosen], runs.length > 1);
  }, (up) => status(up ? "" : "not connected")));
}

function line(run, chosen, changed) {
  const box = h("input", { type: "checkbox", "aria-label": `Compare ${run.name}`, onchange: () => {
    if (box.checked) chosen.add(run.name); else chosen.delete(run.name);
    history.replaceState(null, "", chosen.size ? `#/?compare=${encodeURIComponent([...chosen].join(","))}` : "#/");
    changed();
  } });
  box.checked = chosen.has(run.name);
  const place = [...chosen].indexOf(run.name);
  if (place >= 0) box.classList.add(`c${(place % 8) + 1}`);
  return h("tr", { class: "go", data: { href: `#/run/${encodeURIComponent(run.name)}` } },
    h("td", { class: "tick" }, box),
    h("td", { class: "name" }, h("a", { href: `#/run/${encodeURIComponent(run.name)}` }, run.name)),
    h("td", {}, pill(run.state, run.state)), h("td", { class: "muted wide" }, when(run.started)),
    h("td", { class: "n" }, `${num(run.step)} / ${num(run.steps)}`, run.step < run.steps ? meter(run.step / run.steps, run.state) : null), h("td", { class: "n wide" }, num(run.rollouts)),
    h("td", { class: "n wide" }, fixed(run.reward)), h("td", { class: "wide" }, spark(run.rewards)), h("td", {}, run.evals > 1 ? h("span", { class: "wide" }, `${percent(run.first_success)} → `) : null, percent(run.last_success), meter(run.last_success)), h("td", { class: "muted wide" }, [run.agent, run.model].filter(Boolean).join(", ") || "–"));
}

async function compare(place, names, several) {
  if (names.length < 2) {
    replace(place, several ? h("p", { class: "hint" }, "Tick two or more runs to compare their curves.") : null);
    return;
  }
  const runs = await Promise.all(names.map((name) => get(runPath(name))));
  const kinds = [...new Set(runs.flatMap((run) => run.metrics.flatMap((m) => Object.keys(m.failures ?? {}))))].sort();
  const curves = [...CURVES, ...(kinds.length ? kinds : [""]).map((kind) => [kind ? `failures: ${kind}` : "failures", (m) => m.failures?.[kind] ?? 0, true])];
  const charts = curves.map(([title, value, raw = false]) => chart(title, runs.map((run, i) => ({
    name: run.name, colour: (i % 8) + 1, points: run.metrics.filter((m) => m.kind === "step").map((m) => [m.step, value(m)]),
  })), { least: 0, legend: false, raw }));
  charts.splice(1, 0, chart("held-out success", runs.map((run, i) => ({
    name: run.name, colour: (i % 8) + 1, dots: true, points: run.metrics.filter((m) => m.kind === "eval").map((m) => [m.step, m.success]),
  })), { least: 0, most: 1, format: (v) => percent(v, 0), legend: false }));
  replace(place, section(`Compare ${names.length} runs`, h("div", { class: "legend" }, names.map((name, i) => h("span", { class: `key c${(i % 8) + 1}`, title: name }, name))), h("div", { class: "charts" }, charts)));
}
