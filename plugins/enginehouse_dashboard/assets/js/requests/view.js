// Live requests, the last ones that ended, and the last decisions.

import { named } from "../colours.js";
import { h, look, put, show, table } from "../dom.js";
import { read, readIfThere } from "../gateway.js";
import { live } from "../live.js";
import { clock, count, duration, milliseconds, tone } from "../words.js";
import { openDrawer } from "./drawer.js";
import { loaded, phaseWords, rateMeter } from "./progress.js";

const LOOK_MS = 2000;
const HISTORY = 200;
const CLIENT_LEFT = 499;

export function requestsView() {
  const search = h("input", { type: "search", placeholder: "Model, key, backend or id", "aria-label": "Find requests" });
  const status = h("select", { "aria-label": "Outcome" },
    [["", "all outcomes"], ["2", "answered"], ["5", "failed"], ["4", "refused"], ["left", "client left"]].map(([value, text]) => new Option(text, value)));
  const slow = h("input", { type: "number", min: "0", step: "0.5", placeholder: "slower than, s", "aria-label": "Slower than this many seconds" });
  const running = table(["request", "model", "phase", "backend", "key", "#age", "#tokens", "#tokens/s", "#moves"],
    h("span", {}, h("b", {}, "No request is live"), "Send one from “Try it”, or point a client at this address."));
  const ended = table(["ended", "model", "outcome", "backend", "key", "#took", "#first token", "#tokens", "#tokens/s"],
    h("span", {}, h("b", {}, "No request matches"), "The gateway remembers the last requests without their contents."));
  const decided = table(["time", "request", "asked for", "chosen", "reason"], "No request was routed yet.");
  const past = h("div", {}, h("div", { class: "head" }, h("h2", {}, "Ended"), h("div", { class: "row" }, status, slow)),
    h("div", { class: "sheet" }, ended.node));
  const node = h("div", {},
    h("div", { class: "head" }, h("h2", {}, "Live"), search), h("div", { class: "sheet" }, running.node), past,
    h("div", { class: "head" }, h("h2", {}, "Decisions")), h("div", { class: "sheet" }, decided.node));
  let timer = null;
  let known = { requests: [], history: [], decisions: [] };
  for (const each of [search, status, slow]) each.addEventListener("input", draw);

  async function go() {
    clearTimeout(timer);
    if (!document.hidden && live.access === "operator") await ask().catch(() => {}); // the page tells that it is lost
    timer = setTimeout(go, LOOK_MS);
  }

  async function ask() {
    const [{ requests }, { decisions }, { requests: history }] = await Promise.all(
      [read("/api/requests"), read("/api/decisions?limit=50"), readIfThere(`/api/history?limit=${HISTORY}`, { requests: [] })]);
    known = { requests, decisions, history };
    draw();
  }

  function draw() {
    const text = search.value.trim().toLowerCase();
    const fits = (each, names) => !text || names.some((name) => String(each[name] ?? "").toLowerCase().includes(text));
    const running_ = known.requests.filter((each) => fits(each, ["id", "model", "caller", "replica", "phase"]));
    running.rows(running_, (each) => each.id, liveRow);
    const least = Number(slow.value) * 1000;
    ended.rows(known.history.filter((each) => fits(each, ["id", "model", "asked", "caller", "backend", "code"])
      && (!status.value || status.value === kind(each)) && each.duration_ms >= least),
    (each) => String(each.number ?? `${each.id} ${each.time}`), endedRow);
    decided.rows(known.decisions.filter((each) => fits(each, ["request_id", "requested", "chosen", "caller"])),
      (each) => `${each.time} ${each.request_id}`, decisionRow);
  }

  return { node, shown: go, left: () => clearTimeout(timer) };
}

/** What the outcome is chosen by: `left`, or the first digit of the status. */
const kind = ({ status }) => (status === CLIENT_LEFT ? "left" : String(status)[0]);

const td = (label, name = "") => h("td", { "data-label": label, class: name });

/** A row whose first cell opens the request's drawer. */
function row(cells, open) {
  const id = h("button", { type: "button", class: "link mono cut", onclick: open });
  const node = h("tr", {}, h("td", { class: "wide" }, id), cells);
  return { node, id };
}

function liveRow(first) {
  let request = first;
  const cells = { model: td("model"), phase: td("phase"), replica: td("at"), caller: td("key"), age: td("age", "number"),
    tokens: td("tokens", "number"), rate: td("tokens/s", "number"), moves: td("moves", "number") };
  const word = h("span", { class: "chip" });
  const done = h("div", { class: "fill busy" });
  const bar = h("div", { class: "bar", role: "progressbar", "aria-label": "loading" }, done);
  const rate = rateMeter();
  cells.phase.append(word, bar);
  const { node, id } = row(Object.values(cells), () => openDrawer({ live: request }));
  return { node, update(each) {
    request = each;
    put(id, each.id);
    named(cells.model, each.model ?? each.path);
    const share = loaded(each);
    put(word, phaseWords(each, share));
    look(word, `chip ${tone(each.phase)}`);
    show(bar, share !== null);
    done.style.width = `${100 * share}%`;
    bar.setAttribute("aria-valuenow", Math.round(100 * share));
    named(cells.replica, each.replica?.split("@").at(-1));
    named(cells.caller, each.caller);
    put(cells.age, duration(each.age_ms / 1000));
    put(cells.tokens, count(each.output_tokens));
    put(cells.rate, count(rate(each)));
    put(cells.moves, each.moves || "");
  } };
}

/** Red is for what an operator has to look at: neither refusals nor clients that left. */
const outcomeTone = ({ status }) => (status >= 500 ? "bad" : status === CLIENT_LEFT ? "faint" : status >= 400 ? "busy" : "good");
const outcome = ({ status, code }) => (status === CLIENT_LEFT ? "client left" : status >= 400 ? `${status} ${code ?? ""}` : String(status));

function endedRow(record) {
  const rate = record.decode_rate ? count(record.decode_rate) : "";
  const cells = [named(td("model"), record.model ?? record.asked ?? record.path),
    h("td", { "data-label": "outcome" }, h("span", { class: `chip ${outcomeTone(record)}` }, outcome(record))),
    named(td("at"), record.backend), named(td("key"), record.caller),
    h("td", { "data-label": "took", class: "number" }, milliseconds(record.duration_ms)),
    h("td", { "data-label": "first token", class: "number" }, milliseconds(record.ttft_ms)),
    h("td", { "data-label": "tokens", class: "number" }, record.tokens_out === null ? "" : `${count(record.tokens_in)} → ${count(record.tokens_out)}`),
    h("td", { "data-label": "tokens/s", class: "number" }, rate)];
  const { node, id } = row(cells, () => openDrawer({ record }));
  put(id, clock(record.time));
  return { node, update() {} };
}

function decisionRow(each) {
  const node = h("tr", {}, h("td", { class: "faint wide" }, clock(each.time)), h("td", { class: "mono wide" }, each.request_id), h("td", {}, each.requested),
    each.error ? h("td", { class: "busy wide" }, each.error.message) : h("td", {}, each.chosen), h("td", { class: "faint" }, each.reason ?? ""));
  return { node, update() {} };
}
