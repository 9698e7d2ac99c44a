// The rollouts of a run: filtered and sorted by the server, a page at a time.

import { get, runPath } from "./api.js";
import { stack } from "./chart.js";
import { h, pill, replace, replaceRows, section } from "./dom.js";
import { FATES, fateName, fixed, KINDS, num, seconds, STAGE_COLOURS, STAGE_NAMES, STAGES } from "./format.js";

const COLUMNS = [["rollout_id", "rollout"], ["step", "step", "n"], ["", "outcome"], ["reward", "reward", "n"], ["turns", "turns", "n"], ["tokens", "tokens", "n"], ["", "tries", "n"], ["seconds", "time", "n"], ["", "", "bars"]];
const OUTCOMES = ["", "solved", "unsolved", "failed", ...KINDS];
const PAGE = 100;

export function rolloutTable(run, phases, query) {
  const asked = { phase: query.get("phase") ?? "", step: query.get("step") ?? "", outcome: query.get("outcome") ?? "", fate: query.get("fate") ?? "", text: query.get("text") ?? "", sort: query.get("sort") ?? "-n", limit: PAGE };
  const body = h("tbody");
  const heads = h("tr");
  const count = h("span", { class: "muted" });
  const more = h("button", { type: "button", class: "small", onclick: () => { asked.limit = Math.min(1000, asked.limit + 2 * PAGE); load(); } }, "more");
  const fields = {};
  const choice = (name, values, label, shown = (value) => value) => {
    const select = fields[name] = h("select", { "aria-label": label, onchange: () => { asked[name] = select.value; changed(); } },
      values.map((value) => h("option", { value, selected: value === asked[name] }, value ? shown(value) : label)));
    return select;
  };
  const input = (name, attributes) => {
    const field = fields[name] = h("input", { ...attributes, value: asked[name], oninput: () => { asked[name] = field.value; changed(); } });
    return field;
  };
  const changed = () => {
    const kept = new URLSearchParams(Object.entries(asked).filter(([k, v]) => v && k !== "limit" && !(k === "sort" && v === "-n")));
    history.replaceState(null, "", `#/run/${encodeURIComponent(run)}${kept.size ? `?${kept}` : ""}`);
    load();
  };
  let latest = 0;
  async function load() {
    const turn = ++latest;
    const found = await get(runPath(run, "rollouts"), asked);
    if (turn !== latest) return;
    replace(heads, COLUMNS.map(([name, label, kind]) => h("th", { class: kind ?? "", scope: "col", "aria-sort": order(name, asked.sort) },
      name ? h("button", { type: "button", class: "sort", onclick: () => { asked.sort = asked.sort === `-${name}` ? name : `-${name}`; changed(); } }, label, arrow(name, asked.sort)) : label)));
    const longest = Math.max(...found.rollouts.map((one) => one.seconds), 0);
    replaceRows(body, found.rollouts.map((one) => row(run, one, longest)));
    if (!found.rollouts.length) replace(body, h("tr", {}, h("td", { colspan: 9, class: "none" }, "no rollout matches")));
    count.textContent = `${num(found.rollouts.length)} of ${num(found.total)}`;
    more.hidden = found.rollouts.length >= found.total || asked.limit >= 1000;
  }
  const tools = h("div", { class: "tools" }, count, choice("phase", ["", ...phases], "phase"), choice("outcome", OUTCOMES, "outcome"), choice("fate", ["", ...Object.keys(FATES)], "became", fateName),
    input("step", { type: "number", min: 0, placeholder: "step", "aria-label": "Step" }),
    input("text", { type: "search", placeholder: "id contains", "aria-label": "Id contains", id: "filter" }));
  const element = section("Rollouts", tools, h("div", { class: "scroll" }, h("table", { class: "list", id: "rollouts" }, h("thead", {}, heads), body)), more);
  // From elsewhere on the page: these filters and no others.
  const choose = (filters, scroll = true) => {
    Object.assign(asked, { phase: "", step: "", outcome: "", fate: "", text: "" }, filters);
    for (const [name, field] of Object.entries(fields)) field.value = asked[name];
    changed();
    if (scroll) element.scrollIntoView({ block: "start" });
  };
  return { element, load, choose };
}

function order(name, sort) {
  if (!name || sort.replace("-", "") !== name) return null;
  return sort.startsWith("-") ? "descending" : "ascending";
}

function arrow(name, sort) {
  const way = order(name, sort);
  return way === null ? "" : way === "ascending" ? " ↑" : " ↓";
}

export function outcome(one) {
  if (one.failure) return pill(one.failure, "bad");
  if (one.reward === null) return pill("no reward", "bad");
  return pill(one.solved ? "solved" : "unsolved", one.solved ? "good" : "");
}

// As long as its share of the longest in the table.
function bars(one, longest) {
  const parts = STAGES.map((name) => ({ name: STAGE_NAMES[name], value: one.timings[name] ?? 0, colour: STAGE_COLOURS[name], text: seconds(one.timings[name] ?? 0) }));
  const element = stack(parts, `${one.rollout_id}: time by stage`);
  element.style.setProperty("width", `${(100 * (one.seconds / longest || 0)).toFixed(1)}%`);
  return element;
}

function row(run, one, longest) {
  const href = `#/run/${encodeURIComponent(run)}/rollout/${one.n}`;
  return h("tr", { class: "go", data: { href } }, h("td", {}, h("a", { href }, one.rollout_id || `number ${one.n}`)), h("td", { class: "n" }, num(one.step)), h("td", { class: "what" }, outcome(one), one.failure && one.error ? h("span", { class: "why muted", title: one.error }, one.error) : null),
    h("td", { class: "n" }, fixed(one.reward)), h("td", { class: "n" }, num(one.turns)), h("td", { class: "n" }, num(one.tokens)), h("td", { class: "n" }, num(one.attempts)), h("td", { class: "n" }, seconds(one.seconds)), h("td", { class: "bars", "aria-hidden": "true" }, bars(one, longest)));
}
