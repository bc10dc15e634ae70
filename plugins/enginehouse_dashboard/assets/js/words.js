// Figures and states for readers.

const TONES = {
  ready: "good", serving: "good", done: "good",
  loading: "busy", starting: "busy", "waiting for room": "busy", stopping: "busy", draining: "busy", queued: "busy", migrating: "busy",
  routing: "busy", unknown: "busy", downloading: "busy", placing: "busy",
  failed: "bad", hung: "bad", unreachable: "bad", refused: "bad",
};

export const tone = (word) => TONES[word] ?? "faint";

/** The condition of a replica in words: `loading 42 %`, `unreachable for 3 min`. */
export function conditionText({ word, progress, since }, now = Date.now() / 1000) {
  if (word === "loading") return progress === undefined ? "loading" : `loading ${Math.round(progress * 100)} %`;
  if (["unreachable", "hung", "failed"].includes(word) && since) return `${word} for ${duration(now - since)}`;
  return word;
}

const short = (value) => value.toFixed(1).replace(/\.0$/, "");

export function duration(seconds) {
  if (seconds < 0.001) return "0 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${short(seconds)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

export const milliseconds = (ms) => (ms === null || ms === undefined ? "" : duration(ms / 1000));

export function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10));
  const value = count / 1024 ** step;
  return `${value < 10 && step ? short(value) : Math.round(value)} ${units[step]}`;
}

/** A cost, in the currency of the configuration. */
export const money = (value) => (value ? (value < 0.01 ? String(Number(value.toPrecision(2))) : value.toFixed(2)) : "–");

/** `most`: the greatest of several values, whose unit they all have. */
export function count(value, most = value) {
  if (value === null || value === undefined) return "";
  if (Math.abs(most) >= 1e6) return `${short(value / 1e6)} M`;
  if (Math.abs(most) >= 1e4) return `${short(value / 1e3)} k`;
  if (value && Math.abs(value) < 1) return String(Number(value.toPrecision(2)));
  return value % 1 && Math.abs(value) < 100 ? short(value) : String(Math.round(value));
}

/** A value of a series, by its unit. */
export function figure(value, unit, most) {
  if (value === null || value === undefined) return "–";
  if (unit === "ms") return milliseconds(value);
  if (unit === "ratio") return `${Math.round(value * 100)} %`;
  if (unit === "bytes") return bytes(value);
  return unit === "1/s" ? `${count(value, most)}/s` : count(value, most);
}

// Times have the form that the viewer's browser has for them.
const FORMS = Object.fromEntries(Object.entries({ clock: { timeStyle: "medium" }, short: { timeStyle: "short" },
  dated: { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" }, moment: { dateStyle: "medium", timeStyle: "medium" }, day: { dateStyle: "medium" } }).map(([name, form]) => [name, new Intl.DateTimeFormat([], form)]));
const formed = (form) => (seconds) => FORMS[form].format(seconds * 1000);
export const clock = formed("clock");
export const moment = formed("moment");
export const day = formed("day");
/** The time of day; with the date, if that is not today's. */
export const when = (seconds) => (day(seconds) === day(Date.now() / 1000) ? clock(seconds) : FORMS.dated.format(seconds * 1000));
/** For an axis that is so many seconds long. */
export const hour = (seconds, span) => (span < 240 ? clock(seconds) : FORMS.short.format(seconds * 1000));
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
