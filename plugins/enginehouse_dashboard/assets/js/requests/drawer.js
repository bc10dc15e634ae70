// Everything about one request.

import { action } from "../actions.js";
import { h, put } from "../dom.js";
import { call, part, post, read } from "../gateway.js";
import { live } from "../live.js";
import { count, milliseconds, moment, plural } from "../words.js";
import { candidates } from "./candidates.js";
import { bars, phasesOf, phasesOfAttempts } from "./phases.js";
import { prefixWords } from "./prefix.js";

const LOOK_MS = 1000;
const dialog = document.getElementById("drawer");
let timer = null;
dialog.addEventListener("close", () => clearTimeout(timer));
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

/** Opens the drawer of a request that is `live`, as `/api/requests` has it, or of the `record` of one that ended. */
export function openDrawer({ live: request, record }) {
  const title = h("h2", { id: "drawer-title" }, (request ?? record).model ?? (request ?? record).asked ?? (request ?? record).path);
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const acts = h("div", { class: "row" });
  const body = h("div", { class: "stack" });
  dialog.replaceChildren(h("div", { class: "head" }, title, close), acts, body);
  dialog.showModal();
  if (record) return body.replaceChildren(...endedParts(record));
  acts.append(...operations(request));
  follow(request.id, body, acts);
}

async function follow(id, body, acts) {
  clearTimeout(timer);
  try {
    body.replaceChildren(...liveParts(await read(`/api/requests/${part(id)}`)));
    if (dialog.open) timer = setTimeout(() => follow(id, body, acts), LOOK_MS);
  } catch (error) {
    acts.replaceChildren(h("p", { class: "faint", role: "status" }, error.status === 404 ? "This request has ended." : error.message));
    if (!body.childElementCount) body.append(h("p", { class: "mono" }, id));
  }
}

function operations(request) {
  const cancel = action({ label: "Cancel", doing: "Cancelling", done: "Cancelled", ask: "Its client gets an error.", look: "danger",
    act: () => call("DELETE", `/api/requests/${part(request.id)}`) });
  return [mover(() => request), cancel.node];
}

/** Moves a live stream to another backend with its model. */
export function mover(request) {
  const others = () => {
    const { replica } = request() ?? {};
    const source = live.status?.replicas.find((each) => each.replica === replica);
    return source ? live.status.replicas.filter((each) => each.model === source.model && each.backend !== source.backend) : [];
  };
  const to = h("select", { "aria-label": "Move to" });
  const move = action({ label: "Move", doing: "Moving", act: async () => {
    const moved = await post(`/api/requests/${part(request().id)}/move`, { to: to.value });
    return `Moved from ${moved.from} to ${moved.to}; its client waited ${Math.round(moved.gap_ms)} ms`;
  } });
  const node = h("span", { class: "acts" }, to, move.node);
  const update = () => {
    const names = others().map(({ backend }) => backend);
    node.hidden = !names.length;
    if ([...to.options].map(({ value }) => value).join() !== names.join()) to.replaceChildren(...names.map((name) => new Option(name)));
  };
  update();
  node.renew = update;
  return node;
}

function liveParts(request) {
  const now = request.explanation;
  return [
    bars(phasesOfAttempts(request.attempts)),
    facts({
      id: request.id, key: request.caller, user: request.user, phase: request.phase, "answered by": request.replica,
      tokens: request.output_tokens === null ? null : `${request.prompt_tokens ?? "?"} → ${request.output_tokens}${request.max_tokens ? ` of at most ${request.max_tokens}` : ""}`,
      age: milliseconds(request.age_ms), moves: request.moves || null, "stays because": request.stays,
    }),
    ...attempts(request.attempts.map((each) => ({ ...each, took: each.ended_ms - each.began_ms }))),
    ...(now ? [h("h3", {}, "Where it would go now"), facts({ "in the cache there": prefixWords(now.prefix) }), candidates(now)] : []),
  ];
}

function endedParts(record) {
  return [
    bars(phasesOf(record)),
    facts({
      id: record.id, "ended": moment(record.time), status: `${record.status} ${record.outcome}`,
      error: record.message, key: record.caller, user: record.user, agent: record.agent, "asked for": record.asked,
      "answered by": record.backend && `${record.model} at ${record.backend}`,
      tokens: record.tokens_out === null ? null
        : `${count(record.tokens_in)} → ${count(record.tokens_out)}${record.tokens_cached ? `, ${count(record.tokens_cached)} of the prompt from the cache` : ""}`,
      "expected in the cache": prefixWords(record.prefix),
      "first token": milliseconds(record.ttft_ms), "tokens per second": count(record.decode_rate) || null, retries: record.retries || null, moves: record.moves || null,
      took: milliseconds(record.duration_ms), trace: trace(record.trace_id),
    }),
    ...attempts(record.attempts ?? []),
  ];
}

function trace(id) {
  const pattern = live.status?.trace_url;
  return !id ? null : pattern ? h("a", { href: pattern.replace("{trace_id}", id), target: "_blank", rel: "noreferrer" }, id) : id;
}

function attempts(all) {
  if (all.length < 2) return [];
  return [h("h3", {}, plural(all.length, "attempt")), h("ol", { class: "events" }, all.map((each) =>
    h("li", {}, h("span", { class: "faint" }, milliseconds(each.took ?? (each.ended - each.began) * 1000)),
      h("span", {}, `${each.replica}: ${each.outcome}${each.why ? ` (${each.why})` : ""}${each.moved ? `, took the stream over (${each.moved.cause})` : ""}`))))];
}

function facts(given) {
  const known = Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.flatMap(([name, value]) => [h("dt", {}, name), put_(h("dd"), value)]));
}

const put_ = (node, value) => (value instanceof Node ? (node.append(value), node) : put(node, value));
