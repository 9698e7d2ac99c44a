// The page: which view the address asks for, the trail above it, and the keys.

import { start } from "./api.js";
import { h, put, replace, toSight } from "./dom.js";
import { rolloutView } from "./rollout.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { tokensView } from "./tokens.js";

const KEYS = [["j, k", "next, previous line of a table"], ["Enter", "open it"], ["u", "up, to where this belongs"], ["/", "filter"], ["[, ]", "previous, next rollout of the group"],
  ["1 … 5", "colour tokens by log-probability, mask, advantage, weights, entropy"], ["←, →", "previous, next token"], ["t", "conversation or tokens"], ["?", "these keys"]];

const view = document.getElementById("view");
const state = document.getElementById("status");
const help = document.getElementById("help");
let leaving = [];
let visit = 0;

function parse() {
  const [path, asked] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const query = new URLSearchParams(asked ?? "");
  if (parts[0] === "run" && parts[2] === "rollout") return { show: parts[4] === "tokens" ? tokensView : rolloutView, run: parts[1], n: parts[3], tail: parts[4], query };
  if (parts[0] === "run" && parts[1]) return { show: runView, run: parts[1], query };
  return { show: runsView, query };
}

async function go() {
  leaving.forEach((stop) => stop());
  leaving = [];
  const mine = ++visit;
  const at = parse();
  state.textContent = "";
  state.className = "";
  trail(at);
  const page = h("div", { class: "page" });
  try {
    await at.show(page, { ...at, leave: (stop) => (mine === visit ? leaving.push(stop) : stop()), status });
  } catch (error) {
    put(page, h("p", { class: "error", role: "alert" }, error.message));
  }
  if (mine !== visit) return;
  replace(view, page);
  view.dataset.ready = location.hash || "#/";
  const turn = at.query.get("turn");
  if (!turn) window.scrollTo(0, 0);
  else toSight(page.querySelector(".piece.sampled.here") ?? document.getElementById(`turn-${turn}`));
}

function status(text) {
  state.textContent = text;
  state.className = text;
}

function trail(at) {
  const parts = [h("a", { href: "#/", class: "brand" }, "Runs")];
  if (at.run) parts.push(h("a", { href: `#/run/${encodeURIComponent(at.run)}` }, at.run));
  if (at.n !== undefined) parts.push(h("a", { href: `#/run/${encodeURIComponent(at.run)}/rollout/${at.n}` }, `rollout ${at.n}`));
  if (at.tail) parts.push(h("span", {}, at.tail));
  replace(document.getElementById("trail"), parts.flatMap((part, i) => (i ? [h("span", { class: "slash", "aria-hidden": "true" }, "/"), part] : [part])));
  document.title = `${at.n !== undefined ? `rollout ${at.n} · ` : ""}${at.run ?? "Runs"} · art`;
}

function up() {
  const at = parse();
  const run = at.run ? `#/run/${encodeURIComponent(at.run)}` : "#/";
  location.hash = at.tail ? `${run}/rollout/${at.n}` : at.n !== undefined ? run : "#/";
}

function move(by) {
  const rows = [...view.querySelectorAll("tr.go:not(#failed tr)")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("cursor"));
  rows[at]?.classList.remove("cursor");
  const row = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
  row.classList.add("cursor");
  row.scrollIntoView({ block: "nearest" });
}

function toggle() {
  const at = parse();
  if (at.n !== undefined) location.hash = `#/run/${encodeURIComponent(at.run)}/rollout/${at.n}${at.tail ? "" : "/tokens"}`;
}

function openHelp() {
  replace(help, h("h2", { id: "help-title" }, "Keys"), h("dl", {}, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("button", { type: "button", onclick: () => help.close() }, "close"));
  help.showModal();
}

const ACTIONS = { j: () => move(1), k: () => move(-1), u: up, t: toggle, "?": openHelp,
  Enter: () => { const row = view.querySelector("tr.cursor"); if (row) location.hash = row.dataset.href; },
  "/": () => document.getElementById("filter")?.focus() };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.closest("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const action = ACTIONS[event.key];
  if (action) { event.preventDefault(); action(); }
});
document.addEventListener("click", (event) => {
  const row = event.target.closest("tr.go");
  if (row && !event.target.closest("a, button, input") && !String(getSelection())) location.hash = row.dataset.href;
});
document.getElementById("keys").addEventListener("click", openHelp);
// The address names the view: the link moves the focus only.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); view.focus(); });
if (start && !location.hash) history.replaceState(null, "", start);
window.addEventListener("hashchange", go);
go();
