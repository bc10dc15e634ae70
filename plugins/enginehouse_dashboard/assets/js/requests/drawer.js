// Everything about one request.

import { action } from "../actions.js";
import { named } from "../colours.js";
import { h, put } from "../dom.js";
import { call, part, post, read, readIfThere } from "../gateway.js";
import { live } from "../live.js";
import { count, milliseconds, moment, money } from "../words.js";
import { candidates } from "./candidates.js";
import { bars, phasesOf, phasesOfAttempts } from "./phases.js";
import { prefixWords } from "./prefix.js";
import { loaded, phaseWords, promptShare, rateMeter } from "./progress.js";
import { attemptsOf, choiceWords, timeline } from "./story.js";

const LOOK_MS = 1000;
const HISTORY = 200;
const ENDED = new Set(["done", "failed"]);
const dialog = document.getElementById("drawer");
let timer = null;
dialog.onclose = () => clearTimeout(timer);
dialog.onclick = ({ target }) => { if (target === dialog) dialog.close(); }; // what returns false would stop the click

/** Opens the drawer of a request that is `live`, as `/api/requests` has it, or of the `record` of one that ended. */
export function openDrawer({ live: request, record }) {
  const about = request ?? record;
  const title = named(h("h2", { id: "drawer-title" }), about.model ?? about.asked ?? about.path);
  const close = h("button", { onclick: () => dialog.close() }, "Close");
  const acts = h("div.row");
  const body = h("div.stack");
  dialog.replaceChildren(h("div.head", title, close), acts, body);
  dialog.showModal();
  if (record) return body.replaceChildren(...endedParts(record));
  acts.append(...operations(request));
  follow(request.id, body, acts, { rate: rateMeter(), explanation: null });
}

/** Shows a live request, and its record once it has ended. */
async function follow(id, body, acts, seen) {
  clearTimeout(timer);
  try {
    const request = await read(`/api/requests/${part(id)}`);
    if (ENDED.has(request.phase)) {
      const { requests } = await readIfThere(`/api/history?limit=${HISTORY}`, { requests: [] });
      const record = requests.find((each) => each.id === id);
      acts.replaceChildren(h("p.faint", { role: "status" }, "This request has ended."));
      if (record) body.replaceChildren(...endedParts(record, seen.explanation));
      return;
    }
    seen.explanation ??= request.explanation;
    const opened = body.querySelector("details")?.open;
    const focused = body.querySelector("summary") === document.activeElement;
    body.replaceChildren(...liveParts(request, seen.rate(request)));
    if (opened) body.querySelector("details").open = true;
    if (focused) body.querySelector("summary")?.focus();
    if (dialog.open && body.isConnected) timer = setTimeout(() => follow(id, body, acts, seen), LOOK_MS);
  } catch (error) {
    acts.replaceChildren(h("p.faint", { role: "status" }, error.status === 404 ? "This request has ended." : error.message));
    if (!body.childElementCount) body.append(h("p.mono", id));
  }
}

function operations(request) {
  const cancel = action({ label: "Cancel", doing: "Cancelling", done: "Cancelled", ask: "Its client gets an error.", look: "danger",
    act: () => call("DELETE", `/api/requests/${part(request.id)}`) });
  return [mover(() => request), cancel.node];
}

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
  const node = h("span.acts", to, move.node);
  const update = () => {
    const names = others().map(({ backend }) => backend);
    node.hidden = !names.length;
    if ([...to.options].map(({ value }) => value).join() !== names.join()) to.replaceChildren(...names.map((name) => new Option(name)));
  };
  update();
  node.renew = update;
  return node;
}

function liveParts(request, rate) {
  const now = request.explanation;
  const began = (Date.now() - request.age_ms) / 1000;
  return [
    bars(phasesOfAttempts(request.attempts)),
    timeline({ ...request, asked: request.model, began }),
    facts({
      now: phaseWords(request, loaded(request) ?? promptShare(request)),
      tokens: request.output_tokens === null ? null
        : `${count(request.prompt_tokens) || "?"} → ${count(request.output_tokens)}${request.max_tokens ? ` of at most ${count(request.max_tokens)}` : ""}`,
      "tokens per second": rate === null ? null : count(rate), age: milliseconds(request.age_ms),
      replica: request.replica, user: request.user, "stays because": request.stays, id: request.id,
    }),
    ...choiceParts("Where it would go now", now),
  ];
}

function endedParts(record, explanation = null) {
  return [
    bars(phasesOf(record)),
    timeline({ ...record, attempts: attemptsOf(record), began: record.time - record.duration_ms / 1000, ended: record }),
    ...choiceParts("Where it would have gone while it ran", explanation),
    facts({
      ended: moment(record.time),
      tokens: record.tokens_out === null ? null
        : `${count(record.tokens_in)} → ${count(record.tokens_out)}${record.tokens_cached ? `, ${count(record.tokens_cached)} of the prompt from the cache` : ""}`,
      "expected in the cache": prefixWords(record.prefix),
      "first token": milliseconds(record.ttft_ms), "tokens per second": count(record.decode_rate) || null,
      "prompt per second": record.prefill_rate ? `${count(record.prefill_rate)} tokens` : null,
      drafted: record.tokens_drafted ? `${count(record.tokens_accepted)} of ${count(record.tokens_drafted)} tokens were right` : null,
      cost: record.cost ? money(record.cost) : null, retries: record.retries || null, moves: record.moves || null,
      user: record.user, agent: record.agent, session: record.session, id: record.id, trace: trace(record.trace_id),
    }),
  ];
}

function choiceParts(title, explanation) {
  if (!explanation?.candidates.length) return [];
  const words = choiceWords(explanation);
  return [h("h3", title), words ? h("p", words) : "",
    facts({ "in the cache there": prefixWords(explanation.prefix) }),
    h("details", h("summary", "All candidates"), candidates(explanation))];
}

function trace(id) {
  const pattern = live.status?.trace_url;
  return !id ? null : pattern ? h("a", { href: pattern.replace("{trace_id}", id), target: "_blank", rel: "noreferrer" }, id) : id;
}

function facts(given) {
  const known = Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl.facts", known.flatMap(([name, value]) => [h("dt", name), put_(h("dd"), value)]));
}

const put_ = (node, value) => (value instanceof Node ? (node.append(value), node) : put(node, value));
