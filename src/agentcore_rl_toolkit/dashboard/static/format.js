// Figures for eyes: aligned, short, with their unit.

export function num(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1).replace("e+", "e");
  if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en");
  return value.toFixed(digits);
}

// In a column: always as many digits.
export function fixed(value, digits = 3) {
  return typeof value === "number" ? value.toFixed(digits) : "–";
}

// On an axis: as few digits as say it.
export function round(value) {
  return typeof value !== "number" || Math.abs(value) >= 1e6 ? num(value) : String(Number(value.toPrecision(3)));
}

export function signed(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value).toFixed(digits);
  return (Number(text) === 0 ? "" : value > 0 ? "+" : "−") + text;
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.00005) return "0 s";
  if (value < 0.0995) return `${(1000 * value).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  return value < 6000 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  return value < 1e6 ? `${(value / 1e3).toFixed(0)} kB` : value < 1e9 ? `${(value / 1e6).toFixed(0)} MB` : `${(value / 1e9).toFixed(1)} GB`;
}

export function when(unix) {
  if (!unix) return "–";
  const date = new Date(unix * 1000);
  const two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

export const FATES = {
  trained: "trained",
  agent: "agent failed, trained with the set reward",
  equal: "group of equal rewards: teaches nothing",
  waiting: "waiting for its step",
  evaluated: "held-out evaluation",
  model: "model failed", timeout: "timed out", session_lost: "session lost",
  throttled: "throttled", quota: "quota", store: "result store failed",
  contract: "broke the contract", cancelled: "cancelled",
};

// One colour a fate or failure, wherever it is met.
const FATE_COLOURS = { trained: 1, agent: 2, quota: 3, evaluated: 4, model: 5, throttled: 6, equal: 7, waiting: 8, timeout: 9, session_lost: 10, store: 11, contract: 12 };
export const KINDS = Object.keys(FATES).filter((name) => !["trained", "equal", "waiting", "evaluated"].includes(name));

export function fateColour(name) {
  return Object.hasOwn(FATE_COLOURS, name) ? FATE_COLOURS[name] : 13;
}

export function fateName(name) {
  return Object.hasOwn(FATES, name) ? FATES[name] : name;
}

export const STAGES = ["queue_s", "retry_s", "start_s", "agent_s", "model_s", "reward_s", "finish_s"];
export const STAGE_NAMES = {
  queue_s: "queue", retry_s: "earlier attempts", start_s: "start", agent_s: "agent", model_s: "model", reward_s: "reward", finish_s: "store",
};
// Red is kept for what failed.
export const STAGE_COLOURS = { queue_s: 7, retry_s: 2, start_s: 3, agent_s: 4, model_s: 1, reward_s: 10, finish_s: 6 };
