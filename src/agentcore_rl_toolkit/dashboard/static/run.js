// One run: its curves, where its rollouts and their time went, and the table of rollouts.

import { get, runPath, watch } from "./api.js";
import { chart, stack } from "./chart.js";
import { h, meter, pill, put, refresh, section } from "./dom.js";
import { bytes, fateColour, fateName, fixed, num, percent, seconds, STAGE_COLOURS, STAGE_NAMES, STAGES, when } from "./format.js";
import { rolloutTable } from "./table.js";
import { timeline } from "./timeline.js";

export async function runView(view, { run, query, status, leave }) {
  const parts = Object.fromEntries(["head", "problems", "curves", "where", "stages", "failed", "sessions", "notes"].map((name) => [name, h("div")]));
  const data = await get(runPath(run));
  const times = timeline(run);
  const table = rolloutTable(run, data.phases, query);
  put(view, parts.head, parts.problems, parts.curves, h("div", { class: "two" }, parts.where, parts.stages), parts.failed,
    section("Time line of a step", times.choose, times.element), parts.sessions, table.element, parts.notes);
  // The rollouts of a training step are counted from 0, the steps that are done from 1.
  const pick = (step) => {
    const number = String(Math.max(0, step - 1));
    table.choose({ phase: "train", step: number }, false);
    times.load(`train ${number}`).catch(() => {});
    times.element.closest("section").scrollIntoView({ block: "start" });
  };
  const show = (found) => {
    refresh(parts.head, head(found));
    refresh(parts.problems, problems(found.problems));
    refresh(parts.curves, curves(found.metrics, pick));
    refresh(parts.where, where(found.where, found.rollouts, table.choose));
    refresh(parts.stages, stages(found.stages));
    refresh(parts.failed, failed(run, found.failures));
    refresh(parts.notes, notes(found));
  };
  show(data);
  let live = data.state === "live";
  const tables = () => Promise.all([table.load(), times.load(), sessions(run, parts.sessions, live)]);
  await tables();
  const again = async () => {
    show(await get(runPath(run)));
    await tables();
  };
  const asking = setInterval(() => { if (live) sessions(run, parts.sessions, live).catch(() => {}); }, 2000);
  leave(() => clearInterval(asking));
  leave(watch(runPath(run, "events"), data.seen, () => again().catch((error) => status(error.message)), (up, now) => {
    live = up && now.state === "live";
    status(up ? now.state : "not connected");
  }));
}

function head(run) {
  const last = run.metrics.findLast((m) => m.kind === "step") ?? {};
  const lost = run.failures.reduce((sum, cause) => sum + cause.count, 0);
  const took = last.seconds ? Object.values(last.seconds).reduce((sum, value) => sum + value, 0) : null;
  const facts = [
    ["step", `${num(run.step)} / ${num(run.steps)}`, meter(run.step / run.steps)],
    ["held-out success", percent(run.last_success), run.evals > 1 ? `from ${percent(run.first_success)}` : run.evals ? "before training" : "not evaluated"],
    ["reward", fixed(run.reward), `success ${percent(last.success)}`],
    ["rollouts", num(run.rollouts), lost ? `${num(lost)} failed, ${percent(lost / run.rollouts)}` : "none failed"],
    ["tokens a second", num(last.tokens_per_s, 0), last.rollouts ? `${num(last.tokens / last.rollouts, 1)} a rollout` : ""],
    ["a step takes", seconds(took), last.seconds?.train === undefined ? "" : `${seconds(last.seconds.train)} of it training`],
    left(run) ?? ["took", run.started && run.updated ? seconds(run.updated - run.started) : "–", `since ${when(run.started)}`],
  ];
  return [h("div", { class: "title" }, h("h1", {}, run.name), pill(run.state, run.state),
    run.state === "stopped" && h("span", { class: "muted" }, "no end was written: it crashed, was ended, or can be resumed"),
  h("div", { class: "grow" }), h("span", { class: "muted" }, [run.agent, run.model].filter(Boolean).join(" · "))),
  h("dl", { class: "facts" }, facts.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value), h("div", { class: "more" }, more))))];
}

// A live run's time to its end, at the pace of its latest steps.
function left(run) {
  const steps = run.metrics.filter((m) => m.kind === "step" && typeof m.at === "number").slice(-6);
  if (run.state !== "live" || steps.length < 2 || !run.steps) return null;
  return ["left, about", seconds((Math.max(0, run.steps - run.step) * (steps.at(-1).at - steps[0].at)) / (steps.length - 1)), `since ${when(run.started)}`];
}

export function problems(found) {
  if (!found.length) return null;
  return h("details", { class: "problems", open: found.length < 4 }, h("summary", {}, `${found.length} thing${found.length > 1 ? "s" : ""} could not be read; the rest is shown`),
    h("ul", {}, found.map((one) => h("li", {}, h("code", {}, one.file || "session"), one.at ? ` at byte ${num(one.at)}: ` : ": ", one.message))));
}

function curves(metrics, pick) {
  const steps = metrics.filter((m) => m.kind === "step");
  const evals = metrics.filter((m) => m.kind === "eval");
  const of = (value) => steps.map((m) => [m.step, value(m)]);
  const kinds = [...new Set(steps.flatMap((m) => Object.keys(m.failures ?? {})))].sort();
  const same = steps.every((m) => m.reward === m.success);
  const line = (title, name, value, more = {}) => chart(title, [{ name, colour: 1, points: of(value) }], { least: 0, pick, ...more });
  const charts = [
    chart("Reward", [
      { name: same ? "reward = success" : "reward", colour: 1, points: of((m) => m.reward) }, { name: "success", colour: 3, points: same ? [] : of((m) => m.success) },
      { name: "held-out", colour: 2, dots: true, points: evals.map((m) => [m.step, m.success]) }], { least: 0, most: 1, pick }),
    line("Tokens a rollout", "sampled", (m) => (m.rollouts ? m.tokens / m.rollouts : null), { format: (v) => num(v, 1) }),
    line("Tokens a second", "sampled", (m) => m.tokens_per_s, { format: (v) => num(v, 0) }),
    chart("Staleness, steps", [{ name: "mean", colour: 1, points: of((m) => m.staleness) }, { name: "max", colour: 2, points: of((m) => m.max_staleness) }], { least: 0, most: 1, pick }),
    chart("Failures by kind", kinds.length ? kinds.map((kind) => ({ name: kind, colour: fateColour(kind), points: of((m) => m.failures?.[kind] ?? 0) }))
      : [{ name: "none", colour: 8, points: of(() => 0) }], { least: 0, most: 1, format: (v) => num(v, 1), bars: kinds.length > 0, pick }),
    chart("Step time", ["collect", "train", "save"].map((name, i) => ({ name, colour: i + 1, points: of((m) => m.seconds?.[name]) })), { least: 0, format: seconds, pick }),
  ];
  // not every trainer tells these
  for (const [title, name, value] of [["Entropy", "mean", (m) => m.report?.measures?.entropy], ["KL to the weights that sampled", "mean", (m) => m.report?.measures?.kl_old],
    ["Gradient norm", "norm", (m) => m.report?.grad_norm]]) if (steps.some((m) => typeof value(m) === "number")) charts.push(line(title, name, value));
  return h("div", { class: "charts" }, charts);
}

// Each line shows its rollouts in the table below.
function where(parts, total, choose) {
  if (!total) return section("Where the rollouts went", null, h("p", { class: "none" }, "no rollouts yet"));
  const coloured = parts.map((part) => ({ ...part, value: part.count, colour: fateColour(part.name), text: percent(part.share) }));
  return section("Where the rollouts went", h("span", { class: "muted" }, `${num(total)} in all`), stack(coloured, "Rollouts by what became of them"),
    h("table", { class: "figures", id: "where" }, h("tbody", {}, coloured.map((part) => h("tr", {}, h("td", {}, h("button", { type: "button", class: `key plain c${part.colour}`, title: "show them", onclick: () => choose({ fate: part.name }) }, fateName(part.name))),
      h("td", { class: "n" }, num(part.count)), h("td", { class: "n" }, percent(part.share))))),
    h("tfoot", {}, h("tr", {}, h("td", {}, "all"), h("td", { class: "n" }, num(total)), h("td", { class: "n" }, percent(parts.reduce((a, p) => a + p.share, 0)))))));
}

function failed(run, causes) {
  if (!causes.length) return null;
  return section("What failed", h("span", { class: "muted" }, "alike messages together, the latest one shown"),
    h("div", { class: "scroll" }, h("table", { class: "list", id: "failed" }, h("tbody", {}, causes.map((cause) => {
      const href = `#/run/${encodeURIComponent(run)}/rollout/${cause.n}`;
      return h("tr", { class: "go", data: { href } }, h("td", { class: "n count" }, num(cause.count)), h("td", {}, pill(cause.failure, "bad")),
        h("td", { class: "why", title: cause.error }, cause.error || "no message"), h("td", { class: "n" }, h("a", { href }, cause.rollout_id || `number ${cause.n}`)));
    })))));
}

function stages(found) {
  const mean = (name) => found.seconds[name] ?? 0;
  if (!found.rollouts) return section("Where a rollout's time goes", null, h("p", { class: "none" }, "no rollouts yet"));
  const parts = STAGES.map((name) => ({ name: STAGE_NAMES[name], value: mean(name), slow: found.slow[name] ?? 0, colour: STAGE_COLOURS[name], text: seconds(mean(name)) }));
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  return section("Where a rollout's time goes", h("span", { class: "muted" }, `the latest ${num(found.rollouts)}`),
    stack(parts, "Mean time of a rollout by stage"),
    h("table", { class: "figures", id: "stages" }, h("thead", {}, h("tr", {}, ["", "slowest 5 % from", "mean", "share"].map((name) => h("th", { class: "n", scope: "col" }, name)))),
      h("tbody", {}, parts.map((part) => h("tr", {}, h("td", {}, h("span", { class: `key c${part.colour}` }, part.name)), h("td", { class: "n muted" }, seconds(part.slow)),
        h("td", { class: "n" }, seconds(part.value)), h("td", { class: "n" }, percent(total ? part.value / total : 0))))),
    h("tfoot", {}, h("tr", {}, h("td", {}, "a rollout"), h("td", { class: "n" }, seconds(found.slow_whole)), h("td", { class: "n" }, seconds(total)), h("td", { class: "n" }, total ? "100.0 %" : "–")))));
}

// They come and go with each step: while the run lives their place stays, and what is below it.
async function sessions(run, place, live) {
  const found = await get(runPath(run, "sessions"));
  if (!found.reachable || !(found.sessions.length || live)) { refresh(place); return; }
  const rows = found.sessions.slice(0, 100);
  refresh(place, section("Live sessions", h("span", { class: "muted" }, `${num(found.sessions.length)} at ${found.endpoint_url}`),
    h("div", { class: "scroll short" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["session", "state", "isolation", "age", "memory", "pid"].map((name, i) => h("th", { class: i > 2 ? "n" : "", scope: "col" }, name)))),
      h("tbody", {}, rows.length ? null : h("tr", {}, h("td", { colspan: 6, class: "none" }, "none right now")), rows.map((one) => h("tr", {}, h("td", {}, h("code", {}, one.session_id)), h("td", {}, pill(one.state)), h("td", {}, one.isolation),
        h("td", { class: "n" }, seconds(one.age_s)), h("td", { class: "n" }, bytes(one.memory_bytes)), h("td", { class: "n" }, one.pid ?? "–"))))))));
}

function notes(run) {
  return h("div", { class: "two" },
    h("details", {}, h("summary", {}, "Configuration"), h("pre", {}, run.config ?? "the run wrote none")),
    h("details", {}, h("summary", {}, `Events (${run.events.length})`), h("pre", {}, run.events.map((e) => {
      const { at, event, ...rest } = e;
      return `${when(at)}  ${event ?? ""}  ${Object.keys(rest).length ? JSON.stringify(rest) : ""}`;
    }).join("\n") || "none")));
}
