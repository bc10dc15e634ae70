// Shows /api/status, /api/requests and /api/decisions; /api/events says when to look again.
// Text of clients and engines is only ever set as text, never as markup.

const KEY = "enginehouse-key";
const LOOK_MS = 2000;
const PAUSE_MS = 200;
const RECONNECT_MS = 2000;
const MOST_EVENTS = 100;
const MOST_LOG_LINES = 500;
const LOADED = ["ready", "starting", "sleeping"];
const COLOURS = {
  ready: "good", healthy: "good", serving: "good",
  starting: "busy", stopping: "busy", loading: "busy", queued: "busy", migrating: "busy", unknown: "busy", draining: "busy",
  failed: "bad", unhealthy: "bad",
};

const at = (id) => document.getElementById(id);
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

class Refused extends Error {}

// ---- calling the gateway ----

const waitsForKey = () => !at("key").hidden;

async function call(method, path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  if (answer.ok) return answer;
  if (answer.status === 401 || (key && answer.status === 403)) at("key").hidden = false;
  const told = await answer.json().catch(() => null);
  throw new Refused(told?.error?.message ?? `${method} ${path}: ${answer.status}`);
}

const read = async (path) => (await call("GET", path)).json();

async function* pieces(path, signal) {
  const answer = await call("GET", path, undefined, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) yield piece.value;
}

async function order(button, method, path, body) {
  button.disabled = true;
  tell("");
  try {
    await call(method, path, body);
  } catch (error) {
    tell(error.message);
  }
  button.disabled = false;
  lookSoon();
}

function tell(message) {
  at("message").textContent = message;
  at("message").hidden = !message;
}

// ---- making rows ----

function cell(content, look = "") {
  const made = document.createElement("td");
  made.className = look;
  made.append(...(Array.isArray(content) ? content : [content ?? ""]));
  return made;
}

const word = (text) => cell(text, COLOURS[text] ?? "faint");
const number = (value) => cell(value === null ? "" : String(value), "number");

function button(label, act) {
  const made = document.createElement("button");
  made.textContent = label;
  made.addEventListener("click", () => act(made));
  return made;
}

function fill(id, rows, none) {
  const body = at(id);
  if (body.contains(document.activeElement) && document.activeElement.matches("select")) return; // somebody chooses
  const columns = body.parentElement.querySelectorAll("th").length;
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  }));
  if (rows.length) return;
  const row = document.createElement("tr");
  row.className = "none";
  row.append(Object.assign(cell(none), { colSpan: columns }));
  body.append(row);
}

// ---- what the page shows ----

function showReplicas(status) {
  const backends = new Map(status.backends.map((each) => [each.name, each]));
  fill("replicas", status.replicas.map((replica) => {
    const backend = backends.get(replica.backend);
    const health = cell(backend.draining ? "draining" : backend.health, COLOURS[backend.draining ? "draining" : backend.health]);
    health.title = backend.last_error ?? "";
    return [
      cell(replica.model), cell(replica.backend), cell(backend.driver, "faint"), cell(replica.host, "faint"),
      word(replica.state), health, number(backend.pending),
      number(backend.avg_latency_ms ? `${Math.round(backend.avg_latency_ms)} ms` : ""),
      number(backend.error_share ? `${Math.round(backend.error_share * 100)} %` : ""),
      cell(replicaButtons(replica, backend), "acts"),
    ];
  }), "No models are known yet.");
}

function replicaButtons(replica, backend) {
  const model = `/api/models/${encodeURIComponent(replica.model)}`;
  const drain = backend.draining ? "undrain" : "drain";
  const made = [];
  if (!backend.url) { // launched here
    const loads = LOADED.includes(replica.state) ? "unload" : "load";
    made.push(button(loads, (self) => order(self, "POST", `${model}/${loads}`)));
    made.push(button("log", () => followLog(backend.name)));
  }
  made.push(button(drain, (self) => order(self, "POST", `/api/backends/${encodeURIComponent(backend.name)}/${drain}`)));
  return made;
}

function showRequests(requests, replicas) {
  fill("requests", requests.map((each) => {
    const path = `/api/requests/${encodeURIComponent(each.id)}`;
    const phase = each.position === null ? each.phase : `${each.phase} (${each.position})`;
    return [
      cell(each.id, "id"), cell(each.model ?? each.path), cell(phase, COLOURS[each.phase] ?? "faint"), cell(each.replica),
      number(`${(each.age_ms / 1000).toFixed(1)} s`), number(each.output_tokens), number(each.moves || ""),
      cell([...moveChoice(each, replicas, path), button("cancel", (self) => order(self, "DELETE", path))], "acts"),
    ];
  }), "No request is live.");
}

function moveChoice(request, replicas, path) {
  const source = replicas.find((each) => each.replica === request.replica);
  const others = replicas.filter((each) => source && each.model === source.model && each.backend !== source.backend);
  if (!others.length) return [];
  const made = document.createElement("select");
  made.disabled = request.stays !== null;
  made.title = request.stays ?? "";
  made.append(new Option("move to", ""), ...others.map((each) => new Option(each.backend)));
  made.addEventListener("change", () => {
    const to = made.value;
    made.blur();
    order(made, "POST", `${path}/move`, { to });
  });
  return [made];
}

function showGpus(gpus) {
  at("gpu-section").hidden = !gpus.length;
  fill("gpus", gpus.map((gpu) => {
    const meter = Object.assign(document.createElement("meter"), { max: gpu.total, value: gpu.used });
    return [cell(gpu.host), cell(`${gpu.gpu}: ${gpu.name}`), cell(`${gib(gpu.used)} of ${gib(gpu.total)}`),
      cell(meter), cell(gpu.replicas.join(", "))];
  }), "");
}

function showDecisions(decisions) {
  fill("decisions", decisions.map((each) => [
    cell(clock(each.time), "faint"), cell(each.request_id, "id"), cell(each.requested),
    each.error ? cell(each.error.message, "bad") : cell(each.chosen), cell(each.reason, "faint"),
  ]), "No request was routed yet.");
}

function showEvent(kind, facts) {
  const { time, ...rest } = facts;
  const told = Object.entries(rest).filter(([, value]) => value !== null).map(([name, value]) => `${name}: ${plain(value)}`);
  const lines = `${clock(time)}  ${kind}  ${told.join("  ")}\n${at("events").textContent}`.split("\n");
  at("events").textContent = lines.slice(0, MOST_EVENTS).join("\n");
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(", ") || "none";
  return typeof value === "object" ? Object.values(value).filter((each) => each !== null).join(" ") : value;
}

// ---- looking ----

async function look() {
  if (document.hidden || waitsForKey()) return;
  try {
    const [status, live, routed] = await Promise.all(
      [read("/api/status"), read("/api/requests"), read("/api/decisions?limit=20")]);
    at("headline").textContent =
      `${status.version} · ${status.strategy} · up ${duration(status.uptime_s)} · ${status.requests} live`;
    showReplicas(status);
    showRequests(live.requests, status.replicas);
    showGpus(status.gpus);
    showDecisions(routed.decisions);
    connected("live", "live");
  } catch (error) {
    connected("lost", error instanceof Refused ? error.message : "the gateway does not answer");
  }
}

function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function connected(look, text) {
  at("connection").className = look;
  at("connection").textContent = text;
}

let soon = null;
function lookSoon() {
  soon ??= setTimeout(async () => { await look(); soon = null; }, PAUSE_MS);
}

async function followEvents() {
  let rest = "";
  for await (const piece of pieces("/api/events")) {
    const events = (rest + piece).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: ?(.*)/s)));
      if (!fields.data) continue;
      if (fields.event !== "snapshot") showEvent(fields.event, JSON.parse(fields.data));
      lookSoon();
    }
  }
}

async function keepFollowing() {
  for (;;) {
    if (!waitsForKey()) await followEvents().catch(() => {}); // look() tells what is wrong
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}

// ---- the log of an engine ----

let log = null;

function closeLog() {
  log?.abort();
  at("log-section").hidden = true;
}

async function followLog(backend) {
  closeLog();
  log = new AbortController();
  at("log-name").textContent = backend;
  at("log").textContent = "";
  at("log-section").hidden = false;
  at("log-section").scrollIntoView({ behavior: "smooth" });
  const path = `/api/logs/${encodeURIComponent(backend)}?follow=true&lines=${MOST_LOG_LINES}`;
  try {
    for await (const piece of pieces(path, log.signal)) {
      const lines = (at("log").textContent + piece).split("\n");
      at("log").textContent = lines.slice(-MOST_LOG_LINES - 1).join("\n");
      at("log").scrollTop = at("log").scrollHeight;
    }
  } catch (error) {
    if (error.name !== "AbortError") tell(error.message);
  }
}

at("log-close").addEventListener("click", closeLog);
at("key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("secret").value);
  at("secret").value = "";
  at("key").hidden = true;
  look();
});
document.addEventListener("visibilitychange", look);
setInterval(look, LOOK_MS);
look();
keepFollowing();
