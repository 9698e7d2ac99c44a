// Every token of a row as the trainer saw it: coloured by one figure at a time, explained on hover.

import { get, runPath } from "./api.js";
import { h, pill, put, replace, toSight } from "./dom.js";
import { num, signed } from "./format.js";
import { siblings, title } from "./rollout.js";
import { problems } from "./run.js";
import { strip } from "./strip.js";

const COLOURS = ["log-probability", "mask", "advantage", "weight version", "entropy"];
const STEPS = [-0.05, -0.25, -0.7, -1.4, -2.5, -4];
const SPREAD = [0.05, 0.25, 0.5, 1, 1.5, 2.5];
const AT_ONCE = 2000, LATER = 1000;

export async function tokensView(view, { run, n, query, leave }) {
  const number = Number(query.get("row") ?? 0);
  const [data, rollout] = await Promise.all([get(runPath(run, "rollouts", n, "tokens"), { row: number }), get(runPath(run, "rollouts", n))]);
  const here = `#/run/${encodeURIComponent(run)}/rollout/${data.n}`;
  put(view, title(data, here, "tokens"), problems(data.problems));
  if (!data.columns) { put(view, h("p", { class: "none" }, "no row can be made of this rollout's turns")); return; }
  const read = reader(data.columns);
  const details = h("div", { class: "inspect", "aria-live": "polite" }, h("span", { class: "muted" }, "Point at a token, or go through them with ← and →."));
  const blocks = data.columns.pieces.map((piece) => pieceBlock(piece, read, rollout, here));
  const pieces = h("div", { class: "pieces", data: { colour: COLOURS[0] } }, blocks.map((block) => block.element));
  const tokens = filler(blocks, read, Math.max(0, data.columns.pieces.findIndex((piece) => piece.turn_id === query.get("turn"))));
  const whole = strip(read.n, (i) => (read.columns.mask[i] ? MARKS[pieces.dataset.colour](i, read) : null), pieces, { point: (i) => follower.show(i), go: (i) => follower.go(i) });
  const follower = follow(pieces, details, read, tokens, whole);
  const tools = h("div", { class: "tools" }, switcher(pieces, read, whole.draw), rowChoice(data, here), h("span", { class: "grow" }),
    h("span", { class: "muted" }, `${num(read.n)} tokens, ${num(read.trained)} trained`, data.columns.tokenizer ? "" : "; no tokenizer was found, ids only"));
  put(view, h("div", { class: "split left" }, outline(rollout, data.columns), h("div", { class: "tokens" }, h("div", { class: "sticky" }, tools, whole.element, details), pieces)));
  leave(tokens.stop);
  leave(follower.stop);
  leave(whole.stop);
  leave(siblings(run, rollout, "/tokens"));
  if (query.has("turn")) select(view, query.get("turn"));
}

// What is known of a position.
function reader(columns) {
  const n = columns.ids.length;
  const turn = new Array(n).fill(null);
  for (const span of columns.turns) for (let i = span.start; i < span.end; i++) turn[i] = span;
  const version = new Array(n).fill(null);
  for (const [name, start, end] of columns.versions) for (let i = start; i < end; i++) version[i] = name;
  const versions = [...new Set(columns.versions.map(([name]) => name))];
  return { n, columns, turn, version, versions, trained: columns.mask.reduce((a, b) => a + b, 0),
    text: (i) => columns.texts[columns.ids[i]] ?? null };
}

// What a trained token is coloured by: a class of the style sheet, and how much it matters.
const MARKS = {
  "log-probability": (i, read) => ({ name: `p${STEPS.filter((step) => read.columns.logprobs[i] < step).length}`, weight: -read.columns.logprobs[i] }),
  mask: () => ({ name: "", weight: 0 }),
  advantage: (i, read) => {
    const advantage = read.turn[i]?.advantage ?? 0;
    return { name: `a${advantage < 0 ? "m" : "p"}${Math.min(3, Math.ceil(Math.abs(advantage) / 0.75))}`, weight: Math.abs(advantage) };
  },
  "weight version": (i, read) => ({ name: `v${read.versions.indexOf(read.version[i]) % 8}`, weight: 0 }),
  entropy: (i, read) => {
    const spread = read.columns.entropies?.[i] ?? 0;
    return { name: `e${SPREAD.filter((step) => spread > step).length}`, weight: spread };
  },
};

function classes(i, read) {
  if (!read.columns.mask[i]) return "t";
  return `t on ${COLOURS.map((colour) => MARKS[colour](i, read).name).join(" ")}`;
}

function pieceBlock(piece, read, rollout, here) {
  const turn = rollout.turn_list.find((one) => one.turn_id === piece.turn_id);
  const span = read.turn[piece.start];
  const marks = [piece.fork && pill(`fork: ${piece.fork}`, "warn"), span && ["length", "abort"].includes(span.finish_reason) && pill(span.finish_reason, "warn")];
  const label = piece.kind === "sampled" ? `turn ${turn?.seq ?? "?"}, sampled` : "context";
  const high = height(piece, read);
  const box = h("div", { class: "box", style: { "min-height": `${high - 36}px` } });
  const element = h("div", { class: `piece ${piece.kind}`, data: { turn: piece.turn_id ?? "" }, style: { "contain-intrinsic-height": `auto ${high}px` } },
    h("div", { class: "who" }, h("b", {}, label), marks, h("span", { class: "grow" }),
      h("span", { class: "muted", title: `positions ${num(piece.start)} to ${num(piece.end)}; log-probability: the mean` }, sums(piece, read), span && span.advantage !== null ? ` · advantage ${signed(span.advantage)}` : ""),
      piece.turn_id && piece.kind === "sampled" ? h("a", { class: "small", href: `${here}?turn=${encodeURIComponent(piece.turn_id)}` }, "conversation") : null), box);
  return { piece, box, element, next: piece.start };
}

// A long row has tens of thousands of tokens: those in sight first, the others once they are shown.
function filler(blocks, read, first) {
  const places = new Array(read.n);
  const waiting = [...blocks.slice(first), ...blocks.slice(0, first).reverse()];
  const fill = (block, most) => {
    const end = Math.min(block.piece.end, block.next + most);
    const part = document.createDocumentFragment();
    for (let i = block.next; i < end; i++) {
      if (block.piece.parts_at === i && i > block.piece.start) part.append(h("span", { class: "parts", title: "From here on the prompt's ids differ from those that were served" }));
      part.append(places[i] = token(i, read));
    }
    block.box.append(part);
    most -= end - block.next;
    block.next = end;
    if (end === block.piece.end) block.box.style.removeProperty("min-height");
    return most;
  };
  const some = (most) => { while (waiting.length && most > 0) { most = fill(waiting[0], most); if (waiting[0].next === waiting[0].piece.end) waiting.shift(); } };
  let timer = null;
  const later = () => { some(LATER); timer = waiting.length ? setTimeout(later) : null; };
  some(AT_ONCE);
  requestAnimationFrame(() => { timer = setTimeout(later); });
  const at = (i) => {
    const block = places[i] ? null : blocks.find(({ piece }) => piece.start <= i && i < piece.end);
    if (block) fill(block, Infinity);
    return places[i];
  };
  return { at, stop: () => { waiting.length = 0; clearTimeout(timer); } };
}

function sums(piece, read) {
  const size = `${num(piece.end - piece.start)} tokens`;
  if (piece.kind !== "sampled" || piece.end === piece.start) return size;
  const logprobs = read.columns.logprobs.slice(piece.start, piece.end);
  return `${size} · log-probability ${signed(logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length)}, lowest ${signed(Math.min(...logprobs))}`;
}

// About how high it will be: a piece out of sight is laid out only when it comes into sight.
function height(piece, read) {
  let lines = 1;
  let wide = 0;
  for (let i = piece.start; i < piece.end; i++) {
    const text = read.text(i) ?? "00000 ";
    wide += text.length;
    lines += text.split("\n").length - 1;
  }
  const box = 22 * (lines + Math.floor(wide / 120));
  return 36 + (piece.kind === "context" ? Math.min(168, box) : box);
}

function token(i, read) {
  const text = read.text(i);
  const shown = text === null ? `${read.columns.ids[i]}` : text.replaceAll("\n", "↵\n") || "∅";
  const element = document.createElement("span");
  element.className = classes(i, read) + (text === null ? " id" : "");
  element.dataset.i = i;
  element.textContent = shown;
  return element;
}

function switcher(pieces, read, changed) {
  const legend = h("span", { class: "scale" });
  const known = read.columns.entropies ? COLOURS : COLOURS.filter((name) => name !== "entropy");
  const buttons = known.map((name, i) => h("button", { type: "button", title: `key ${i + 1}`, data: { key: String(i + 1) }, onclick: () => choose(name) }, name));
  function choose(name) {
    pieces.dataset.colour = name;
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
    replace(legend, scale(name, read));
    changed();
  }
  choose(COLOURS[0]);
  return h("div", { class: "switch", role: "group", "aria-label": "Colour tokens by" }, buttons, legend);
}

function scale(name, read) {
  const key = (kind, text) => h("span", { class: `t on ${kind}` }, text);
  if (name === COLOURS[0]) return ["0", ...STEPS.map(String)].map((text, i) => key(`p${i}`, text.replace("-", "−")));
  if (name === COLOURS[1]) return [key("", "trained"), h("span", { class: "t" }, "context")];
  if (name === COLOURS[2]) return [key("am3", "worse"), key("ap0", "0"), key("ap3", "better than its group")];
  if (name === COLOURS[4]) return ["0", ...SPREAD.map(String)].map((text, i) => key(`e${i}`, i === SPREAD.length ? `${text} nats` : text));
  return read.versions.length ? read.versions.map((version, i) => key(`v${i % 8}`, version)) : ["unknown"];
}

function rowChoice(data, here) {
  if (data.rows_of.length < 2) return null;
  const select = h("select", { "aria-label": "Row", onchange: () => { location.hash = `${here}/tokens?row=${select.value}`; } },
    data.rows_of.map((row, i) => h("option", { value: i, selected: i === data.row }, `row ${i + 1} of ${data.rows_of.length}: ${row.trained} trained${row.fork ? `, ${row.fork}` : ""}`)));
  return select;
}

function outline(rollout, columns) {
  const inside = new Set(columns.turns.map((span) => span.turn_id));
  const brief = (one) => one?.text || one?.calls?.map((call) => `${call.name}(${call.arguments})`).join(" ") || "";
  return h("nav", { class: "outline", "aria-label": "Turns" }, rollout.turn_list.map((turn) => h("button", {
    type: "button", class: inside.has(turn.turn_id) ? "" : "outside", data: { turn: turn.turn_id }, onclick: () => { select(document, turn.turn_id); toSight(document.querySelector(".piece.sampled.here")); },
    title: inside.has(turn.turn_id) ? null : "not in this row" },
  turn.messages.map((one) => h("span", { class: "line" }, h("b", {}, one.role), brief(one).slice(0, 160))),
  h("span", { class: "line said" }, h("b", {}, `model ${turn.seq}`), turn.fork ? pill(turn.fork, "warn") : null, turn.left ? pill(turn.left, "warn") : null, brief(turn.answer).slice(0, 240)))));
}

function select(place, turnId) {
  for (const element of place.querySelectorAll(".outline button, .piece")) element.classList.toggle("here", element.dataset.turn === turnId);
  const list = place.querySelector(".outline");
  const here = list.querySelector(".here");
  const at = here ? here.offsetTop - list.offsetTop : 0;
  if (here && (at < list.scrollTop || at + here.offsetHeight > list.scrollTop + list.clientHeight)) list.scrollTop = at - list.clientHeight / 3;
}

function follow(pieces, details, read, tokens, whole) {
  let at = -1;
  const show = (i) => {
    if (at >= 0) tokens.at(at).classList.remove("now");
    at = i;
    tokens.at(i).classList.add("now");
    replace(details, figures(i, read));
    whole.show(i);
    if (read.turn[i]) select(document, read.turn[i].turn_id);
  };
  const over = (event) => { const i = event.target.dataset?.i; if (i !== undefined) show(Number(i)); };
  const keys = (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const button = document.querySelector(`.switch [data-key="${CSS.escape(event.key)}"]`);
    if (button) button.click();
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    event.preventDefault();
    const to = at < 0 ? read.columns.mask.indexOf(1) : at + (event.key === "ArrowRight" ? 1 : -1);
    show(Math.max(0, Math.min(read.n - 1, to)));
    tokens.at(at)?.scrollIntoView({ block: "nearest" });
  };
  const go = (i) => { show(i); tokens.at(i).scrollIntoView({ block: "center" }); };
  pieces.addEventListener("pointerover", over);
  document.addEventListener("keydown", keys);
  return { show, go, stop: () => document.removeEventListener("keydown", keys) };
}

function figures(i, read) {
  const on = read.columns.mask[i] === 1;
  const logprob = read.columns.logprobs[i];
  const span = read.turn[i];
  const facts = [["position", num(i)], ["id", String(read.columns.ids[i])], ["text", read.text(i) === null ? "unknown" : JSON.stringify(read.text(i))], ["mask", on ? "1, trained" : "0, context"]];
  if (on) facts.push(["log-probability", logprob.toFixed(4).replace("-", "−")], ["probability", `${(100 * Math.exp(logprob)).toFixed(2)} %`],
    ...(read.columns.entropies?.[i] === undefined || read.columns.entropies[i] === null ? [] : [["entropy", `${read.columns.entropies[i].toFixed(3)} nats`]]),
    ["advantage", signed(span?.advantage)], ["reward", num(span?.reward)], ["weights", read.version[i] ?? "unknown"]);
  return h("dl", {}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
