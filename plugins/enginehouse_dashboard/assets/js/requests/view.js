// Live requests, the last ones that ended, and the last decisions.

import { named } from "../colours.js";
import { finder, h, head, look, nothing, put, show, table } from "../dom.js";
import { read, readIfThere } from "../gateway.js";
import { regularly } from "../live.js";
import { clock, count, duration, milliseconds, tone } from "../words.js";
import { openDrawer } from "./drawer.js";
import { loaded, phaseWords, rateMeter } from "./progress.js";

const LOOK_MS = 2000;
const HISTORY = 200;
const CLIENT_LEFT = 499;

export function requestsView() {
  const search = finder("Model, key, backend or id");
  const status = h("select", { "aria-label": "Outcome" },
    [["", "all outcomes"], ["2", "answered"], ["5", "failed"], ["4", "refused"], ["left", "client left"]].map(([value, text]) => new Option(text, value)));
  const slow = h("input", { type: "number", min: "0", step: "0.5", placeholder: "slower than, s", "aria-label": "Slower than this many seconds" });
  const running = table(["request", "model", "phase", "backend", "key", "#age", "#tokens", "#tokens/s", "#moves"],
    nothing("No request is live", "Send one from “Try it”, or point a client at this address."));
  const ended = table(["ended", "model", "outcome", "backend", "key", "#took", "#first token", "#tokens", "#tokens/s"],
    nothing("No request matches", "The gateway remembers the last requests without their contents."));
  const decided = table(["time", "request", "asked for", "chosen", "reason"], "No request was routed yet.");
  const past = h("div", head("Ended", h("div.row", status, slow)),
    h("div.sheet", ended.node));
  const node = h("div",
    head("Live", search), h("div.sheet", running.node), past,
    head("Decisions"), h("div.sheet", decided.node));
  let known = { requests: [], history: [], decisions: [] };
  for (const each of [search, status, slow]) each.oninput = draw;

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

  return { node, ...regularly(LOOK_MS, ask) };
}

/** What the outcome is chosen by: `left`, or the first digit of the status. */
const kind = ({ status }) => (status === CLIENT_LEFT ? "left" : String(status)[0]);

/** A row whose first cell opens the request's drawer. */
function row(cells, open) {
  const id = h("button", { class: "link mono cut", onclick: open });
  const node = h("tr", h("td.wide", id), cells);
  return { node, id };
}

function liveRow(first, cells) {
  let request = first;
  const word = h("span.chip");
  const done = h("div.fill.busy");
  const bar = h("div.bar", { role: "progressbar", "aria-label": "loading" }, done);
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
    named(cells.backend, each.replica?.split("@").at(-1));
    named(cells.key, each.caller);
    put(cells.age, duration(each.age_ms / 1000));
    put(cells.tokens, count(each.output_tokens));
    put(cells["tokens/s"], count(rate(each)));
    put(cells.moves, each.moves || "");
  } };
}

/** Red is for what an operator has to look at: neither refusals nor clients that left. */
const outcomeTone = ({ status }) => (status >= 500 ? "bad" : status === CLIENT_LEFT ? "faint" : status >= 400 ? "busy" : "good");
const outcome = ({ status, code }) => (status === CLIENT_LEFT ? "client left" : status >= 400 ? `${status} ${code ?? ""}` : String(status));

function endedRow(record, cells) {
  named(cells.model, record.model ?? record.asked ?? record.path);
  cells.outcome.append(h("span", { class: `chip ${outcomeTone(record)}` }, outcome(record)));
  named(cells.backend, record.backend);
  named(cells.key, record.caller);
  put(cells.took, milliseconds(record.duration_ms));
  put(cells["first token"], milliseconds(record.ttft_ms));
  put(cells.tokens, record.tokens_out !== null ? `${count(record.tokens_in)} → ${count(record.tokens_out)}` : record.events ? `→ ${count(record.events)}` : "");
  put(cells["tokens/s"], record.decode_rate ? count(record.decode_rate) : "");
  const { node, id } = row(Object.values(cells), () => openDrawer({ record }));
  put(id, clock(record.time));
  return { node, update() {} };
}

function decisionRow(each, cells) {
  put(cells.request, each.request_id).className = "mono wide";
  put(cells["asked for"], each.requested);
  put(cells.chosen, each.error?.message ?? each.chosen).className = each.error ? "busy wide" : "wide";
  put(cells.reason, each.reason);
  return { node: h("tr", h("td.faint.wide", clock(each.time)), Object.values(cells)), update() {} };
}
