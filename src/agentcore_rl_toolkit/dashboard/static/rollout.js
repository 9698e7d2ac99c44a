// One rollout: the conversation as a tree, its siblings, what came of it and how to run it again.

import { get, runPath, start } from "./api.js";
import { stack } from "./chart.js";
import { copyButton, h, pill, put, s, section } from "./dom.js";
import { fixed, num, seconds, signed, STAGE_COLOURS, STAGE_NAMES, STAGES, when } from "./format.js";
import { problems } from "./run.js";
import { outcome } from "./table.js";

export async function rolloutView(view, { run, n, leave }) {
  const [data, { log }] = await Promise.all([get(runPath(run, "rollouts", n)), get(runPath(run, "rollouts", n, "log")).catch(() => ({ log: null }))]);
  const here = `#/run/${encodeURIComponent(run)}/rollout/${data.n}`;
  put(view, title(data, here, "conversation"), problems(data.problems), data.error ? h("p", { class: "error" }, data.error) : null,
    data.alarm ? h("p", { class: "warn" }, data.alarm) : null,
    h("div", { class: "split" }, h("div", { class: "talk", id: "talk" }, conversation(data, here)), h("aside", {}, sides(run, data, log))));
  leave(siblings(run, data, ""));
}

export function title(data, here, active) {
  const tab = (name, href) => h("a", { href, class: active === name ? "tab here" : "tab", "aria-current": active === name ? "page" : null }, name);
  return h("div", { class: "title" }, h("h1", {}, data.rollout_id || `rollout ${data.n}`), outcome(data), h("div", { class: "grow" }),
    h("nav", { class: "tabs", "aria-label": "Views of this rollout" }, tab("conversation", here), tab("tokens", `${here}/tokens`)));
}

// [ and ] go through the group.
export function siblings(run, data, tail) {
  const group = data.group ?? [];
  const at = group.findIndex((one) => one.n === data.n);
  const go = (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey) return;
    const to = event.key === "]" ? group[at + 1] : event.key === "[" ? group[at - 1] : null;
    if (to) location.hash = `#/run/${encodeURIComponent(run)}/rollout/${to.n}${tail}`;
  };
  document.addEventListener("keydown", go);
  return () => document.removeEventListener("keydown", go);
}

function conversation(data, here) {
  if (!data.turn_list.length) return h("p", { class: "none" }, "no model call of this session is in the journal");
  const children = new Map();
  for (const turn of data.turn_list) {
    const key = turn.parent ?? "";
    children.set(key, [...(children.get(key) ?? []), turn]);
  }
  return grow(h("div"), children, "", here, new Set(data.turn_list.map((turn) => turn.advantage)).size > 1);
}

// The first child goes on at the same depth, every other one is a branch of its own.
function grow(place, children, parent, here, worth) {
  let next = children.get(parent) ?? [];
  while (next.length) {
    const [first, ...others] = next;
    place.append(turnBlock(first, here, worth));
    for (const other of others) {
      const fork = h("div", { class: "fork" }, `branch: ${other.fork ?? "another answer"}`);
      place.append(grow(h("div", { class: "branch" }, fork, turnBlock(other, here, worth)), children, other.turn_id, here, worth));
    }
    next = children.get(first.turn_id) ?? [];
  }
  return place;
}

function turnBlock(turn, here, worth) {
  const marks = [turn.fork && pill(turn.fork, "warn"), turn.left && pill(`not trained: ${turn.left.replaceAll("_", " ")}`, "warn"), !turn.delivered && pill("not delivered", "bad"),
    ["length", "abort"].includes(turn.finish_reason) && pill(turn.finish_reason, "warn"), ...turn.flags.map((flag) => pill(flag))];
  const figures = [`${num(turn.n_prompt)} in`, `${num(turn.n_sampled)} out`, seconds(turn.total_s), turn.versions.length ? `weights ${turn.versions.join(", ")}` : null,
    worth && typeof turn.advantage === "number" ? `advantage ${signed(turn.advantage)}` : null].filter(Boolean).join(" · ");
  return h("article", { class: "turn", id: `turn-${turn.turn_id}` },
    turn.messages.map(message),
    h("div", { class: "answer" }, h("div", { class: "who" }, h("b", {}, "model"), h("span", { class: "muted" }, `turn ${num(turn.seq)}`), marks, h("span", { class: "grow" }), h("span", { class: "muted" }, figures),
      h("a", { class: "small", href: `${here}/tokens?turn=${encodeURIComponent(turn.turn_id)}` }, "tokens")),
    turn.error ? h("p", { class: "error" }, turn.error) : null, turn.answer ? inside(turn.answer) : h("p", { class: "none" }, "no answer")));
}

function message(one) {
  return h("div", { class: `message ${["system", "user", "tool", "assistant"].includes(one.role) ? one.role : ""}` },
    h("div", { class: "who" }, h("b", {}, one.role), one.of ? h("code", { class: "muted" }, one.of) : null), inside(one));
}

function inside(one) {
  return [one.reasoning ? h("details", { class: "reasoning" }, h("summary", {}, "reasoning"), h("div", { class: "text" }, one.reasoning)) : null,
    one.text ? h("div", { class: "text" }, one.text) : null,
    one.calls.map((call) => h("div", { class: "call" }, h("b", {}, call.name), h("pre", {}, pretty(call.arguments))))];
}

function pretty(text) {
  try {
    const value = JSON.parse(text);
    const keys = value && typeof value === "object" && !Array.isArray(value) ? Object.keys(value) : [];
    return keys.length === 1 ? `${keys[0]}: ${typeof value[keys[0]] === "string" ? value[keys[0]] : JSON.stringify(value[keys[0]])}` : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}

function sides(run, data, log) {
  const base = `/api/${runPath(run, "rollouts", data.n)}`;
  const own = data.group.find((one) => one.n === data.n);
  const facts = [["reward", fixed(data.reward)], ["advantage", signed(own?.advantage)], ["phase, step", `${data.phase} ${num(data.step)}`], ["turns", num(data.turns)], ["tokens sampled", num(data.tokens)], ["rows", num(data.row_list.length)],
    ["attempts", num(data.attempts)], ["weights", (data.versions ?? []).join(", ") || "–"], ["ended", when(data.at)], ["token drift", drifted(data.drift)]];
  const parts = STAGES.map((name) => ({ name: STAGE_NAMES[name], value: data.timings[name] ?? 0, colour: STAGE_COLOURS[name], text: seconds(data.timings[name] ?? 0) }));
  return [
    h("table", { class: "figures pairs" }, h("tbody", {}, facts.map(([name, value]) => h("tr", {}, h("td", { class: "muted" }, name), h("td", { class: "n" }, value))))),
    section("Time", h("span", { class: "muted" }, seconds(data.seconds)), stack(parts, "Time by stage"),
      h("div", { class: "legend" }, parts.filter((part) => part.value > 0).map((part) => h("span", { class: `key c${part.colour}` }, part.name, h("b", {}, part.text)))), calls(data)),
    section("Group", h("span", { class: "muted" }, `${data.group.length} rollout${data.group.length > 1 ? "s" : ""} of this task${equal(data.group) ? ", equal rewards: teaches nothing" : ""}`), group(run, data)),
    data.rerun ? section("Run again", copyButton(data.rerun), h("pre", { class: "command" }, data.rerun)) : null,
    section("Result", start ? null : [h("a", { class: "small", href: `${base}/page`, download: "" }, "save page"), " ", h("a", { class: "small", href: `${base}/export`, download: "" }, "export all")], data.result === null ? h("p", { class: "none" }, "none was kept") : h("pre", {}, JSON.stringify(data.result, null, 2))),
    section("Agent's log", null, log === null ? h("p", { class: "none" }, "neither the run folder nor a runtime has it") : h("pre", {}, log || "it printed nothing")),
  ];
}

// When each model call ran, from the rollout's beginning to its end: between them the agent works.
function calls(data) {
  const begin = data.at - data.seconds;
  const share = (at) => Math.max(0, Math.min(100, (100 * (at - begin)) / (data.seconds || 1)));
  const turns = data.turn_list.filter((turn) => turn.started && turn.started >= begin - 1 && turn.started <= data.at + 1);
  if (!turns.length) return null;
  return h("div", { class: "calls muted", title: "when the model was called; between the calls the agent works" }, "model calls", s("svg", { width: "100%", height: 14, role: "img", "aria-label": `${turns.length} model calls over time` }, turns.map((turn) => {
    const from = share(turn.started);
    return s("rect", { class: turn.error ? "fill bad" : "fill c1", x: `${from}%`, width: `${Math.max(0.4, share(turn.started + (turn.total_s ?? 0)) - from)}%`, y: 2, height: 10 },
      s("title", {}, `turn ${turn.seq}: ${seconds(turn.total_s)}, from ${seconds(turn.started - begin)} on`));
  })));
}

function equal(group) {
  return group.length > 1 && new Set(group.map((one) => one.reward)).size === 1;
}

// Prompts that came back as other ids than were sampled: mended in place, or made a row of their own.
function drifted({ stitched = 0, forked = 0 }) {
  return stitched + forked ? `${num(stitched)} stitched, ${num(forked)} forked` : "none";
}

function group(run, data) {
  return h("table", { class: "list", id: "group" }, h("thead", {}, h("tr", {}, ["sample", "outcome", "reward", "advantage", "tokens"].map((name, i) => h("th", { class: i > 1 ? "n" : "", scope: "col" }, name)))),
    h("tbody", {}, data.group.map((one) => {
      const href = `#/run/${encodeURIComponent(run)}/rollout/${one.n}`;
      return h("tr", { class: one.n === data.n ? "go here" : "go", data: { href } }, h("td", {}, h("a", { href }, one.rollout_id.split("-").at(-1) || one.n)), h("td", {}, outcome(one)),
        h("td", { class: "n" }, fixed(one.reward)), h("td", { class: `n ${one.advantage > 0 ? "up" : one.advantage < 0 ? "down" : ""}` }, signed(one.advantage)), h("td", { class: "n" }, num(one.tokens)));
    })));
}
