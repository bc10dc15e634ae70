// What has happened: as a list, and as marks of charts.

import { h, head, keyed, nothing, phone, put, show } from "../dom.js";
import { live } from "../live.js";
import { plural, when } from "../words.js";

const MOST_SHOWN = phone ? 6 : 12;
const MORE = 50;
const names = (all) => (all.length ? all.join(", ") : "nothing");
const model = (replica) => replica.split("@")[0];
/** A replica in short: a launched model has the name of its backend. */
const short = (replica) => (replica === `${model(replica)}@${model(replica)}` ? model(replica) : replica);

const WORDS = {
  gateway_started: () => "The gateway started",
  swap_started: ({ target, evict, waiting }) => [`${short(target)} begins to load`, waiting ? `for ${plural(waiting, "waiting request")}` : "",
    evict.length ? `; ${names(evict.map(short))} ${evict.length === 1 ? "stops" : "stop"} to make room` : ""].filter(Boolean).join(" ").replace(" ;", ";"),
  swap_done: ({ target, error }) => (error ? `${short(target)} did not load: ${error}` : `${short(target)} is loaded`),
  replica_state: ({ replica, state }) => `${short(replica)} is ${state}`,
  backend_health: ({ backend, health, error }) => `${backend} is ${health}${error ? `: ${error}` : ""}`,
  hung: ({ backend, why }) => `${backend} is given up: ${why}`,
  backend_draining: ({ backend, draining }) => (draining ? `${backend} takes no new requests` : `${backend} takes requests again`),
  request_moved: ({ source, destination, gap_ms, cause }) =>
    `A stream moved from ${source} to ${destination}${cause ? ` (${cause})` : ""}; its client waited ${Math.round(gap_ms)} ms`,
  migration_done: ({ policy, moved, source, destination }) => `${policy} moved ${plural(moved.length, "request")} from ${source} to ${destination}`,
  operated: ({ who, act, outcome }) => `${who || "Somebody"}: ${act}${outcome === "done" ? "" : ` (${outcome})`}`,
};

/** The marks of those events that explain a bend in a line. */
const MARKS = {
  gateway_started: () => "the gateway started",
  swap_done: ({ target, error }) => (error ? `${model(target)} did not load` : `${model(target)} loaded`),
  request_moved: ({ source, destination }) => `a stream moved from ${source} to ${destination}`,
  backend_health: ({ backend, health }) => `${backend} is ${health}`,
  hung: ({ backend }) => `${backend} hangs`,
  backend_draining: ({ backend, draining }) => (draining ? `${backend} drains` : `${backend} takes requests again`),
};

const isBad = ({ event, error, health, state }) => event === "hung" || Boolean(error) || health === "unhealthy" || state === "failed";

export function eventMark(each) {
  return each.event in MARKS ? { time: each.time, name: MARKS[each.event](each), bad: isBad(each) } : null;
}

export function sentence(each) {
  if (each.event in WORDS) return WORDS[each.event](each);
  const { event, time: _, ...rest } = each;
  return `${event.replaceAll("_", " ")}: ${Object.values(rest).filter((value) => typeof value === "string").join(" ")}`;
}

export function eventList() {
  const list = h("ol.events");
  const quiet = h("p.none", nothing("Nothing has happened yet",
    "Loads, swaps, moves and changes of health appear here and as marks on the charts."));
  const more = h("button", "Show more");
  let most = MOST_SHOWN;
  const node = h("div", head("Events"), h("div.sheet", list, quiet, more));
  more.onclick = () => { most += MORE; update(); };

  function update() {
    const shown = live.events.filter(({ event }) => event !== "replica_state"); // swaps say more
    keyed(list, shown.slice(0, most), (each) => `${each.time} ${each.event} ${sentence(each)}`, eventRow);
    show(quiet, !shown.length);
    show(more, shown.length > most);
  }
  return { node, update };
}

function eventRow(each) {
  const time = h("time.faint");
  const node = h("li", time, h("span", { class: isBad(each) ? "bad" : "" }, sentence(each)));
  return { node, update: () => put(time, when(each.time)) };
}
