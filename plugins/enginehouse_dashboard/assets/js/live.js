// Keeps the gateway's state up to date. `/api/events` says when to look again; nothing is asked while nobody looks.

import { Refused, call, events, missing, read, readIfThere } from "./gateway.js";

const LOOK_MS = 2000;
const SOON_MS = 250;
const RECONNECT_MS = 2000;
const MOST_EVENTS = 1000;

const watchers = new Set();

/** What is known. `access`: `operator`, `caller` (a key that is not an admin's), `none` (a key is missing), or empty. */
export const live = { status: null, events: [], access: "", problem: "" };

export function watch(changed) {
  watchers.add(changed);
  return () => watchers.delete(changed);
}

const tellAll = () => watchers.forEach((changed) => changed());

async function accessWithout(error) {
  if (error.status === 401) return "none";
  if (error.status === 403) return (await read("/v1/models").then(() => true, () => false)) ? "caller" : "none";
  return live.access;
}

export async function look() {
  if (document.hidden || live.access === "none" || live.access === "caller") return;
  try {
    live.status = await read("/api/status");
    live.access = "operator";
    live.problem = "";
  } catch (error) {
    live.problem = error instanceof Refused ? error.message : "the gateway does not answer";
    live.access = await accessWithout(error);
  }
  tellAll();
}

export function startAgain() {
  live.access = "";
  return look();
}

let soon = null;
export function lookSoon() {
  soon ??= setTimeout(async () => { await look(); soon = null; }, SOON_MS);
}

function unfollowed(error) {
  if (error.status === 404) missing.add("/api/events"); // look() tells all else that is wrong
}

/** The events before now, also those while nobody looked. A move is among them once its request has ended. */
async function recall() {
  const { events: past } = await readIfThere(`/api/events/past?limit=${MOST_EVENTS}`, { events: [] });
  const ended = new Set(past.map(({ id }) => id));
  const moves = live.events.filter(({ event, id }) => event === "request_moved" && !ended.has(id));
  live.events = [...moves, ...past].sort((a, b) => b.time - a.time);
  tellAll();
}

async function follow() {
  for await (const { event, data } of events(await call("GET", "/api/events"))) {
    if (event === "snapshot") await recall();
    if (!event.startsWith("request_") && event !== "snapshot") lookSoon();
    if (event === "snapshot" || (event.startsWith("request_") && event !== "request_moved")) continue; // charts count these
    live.events.unshift({ event, ...JSON.parse(data) });
    live.events.length = Math.min(live.events.length, MOST_EVENTS);
    tellAll();
  }
}

/** Calls `act` when its view is shown, and then every `pace` ms if the last call has ended. */
export function regularly(pace, act) {
  let timer = null;
  let busy = false;
  const left = () => clearInterval(timer);
  async function go() {
    if (busy || document.hidden) return;
    busy = true;
    await act().catch(() => {}); // the page tells that the gateway is lost
    busy = false;
  }
  return { left, shown: () => { left(); timer = setInterval(go, pace); go(); } };
}

export async function start() {
  document.onvisibilitychange = look;
  setInterval(look, LOOK_MS);
  await look();
  for (;;) {
    if (live.access === "operator" && !document.hidden) await follow().catch(unfollowed);
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}
