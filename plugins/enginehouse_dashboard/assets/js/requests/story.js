// What happened to a request, step by step, and why it went where it went, in words.

import { h } from "../dom.js";
import { live } from "../live.js";
import { clock, count, duration, money, plural } from "../words.js";
import { prefixWords } from "./prefix.js";

const WORTH_TELLING_MS = 20;
const SLOWER = 1.2;
const MUCH_LATER_S = 0.05;
const model = (replica) => replica.split("@")[0];

/** The attempts of a record, whose times are seconds of one clock, as those of a live request: in ms since it was whole. */
export function attemptsOf({ arrived, attempts }) {
  const since = (at) => (at === null || at === undefined ? null : (at - arrived) * 1000);
  return attempts.map((each) => ({ ...each, moved: each.gap, began_ms: since(each.began), granted_ms: since(each.granted),
    sent_ms: since(each.sent), first_byte_ms: since(each.first_byte), ended_ms: since(each.ended) }));
}

/** `began`: when the request came, in seconds since the epoch. `ended`: its record, once it has ended. */
export function timeline({ caller, asked, path, attempts, began, ended }) {
  const steps = [{ at: 0, text: `${caller || "A client"} asks for ${asked ?? path}` }];
  attempts.forEach((each, n) => {
    const before = attempts[n - 1];
    steps.push({ at: each.began_ms, text: each.moved ? moveWords(each, before) : choice(each, before) });
    if (each.granted_ms !== null && each.granted_ms - each.began_ms >= WORTH_TELLING_MS) {
      steps.push({ at: each.granted_ms, text: `Its turn comes after ${duration((each.granted_ms - each.began_ms) / 1000)}${loadWords(each, began)}` });
    }
    if (each.first_byte_ms !== null && !each.moved) steps.push({ at: each.first_byte_ms, text: `${each.backend} begins to answer` });
    if (each.outcome !== "served" && each.outcome !== "live" && each.outcome !== "moved" && (n < attempts.length - 1 || !ended)) {
      steps.push({ at: each.ended_ms, text: `${each.backend}: ${each.outcome}${each.why ? ` (${each.why})` : ""}`, bad: n === attempts.length - 1 });
    }
  });
  if (ended) steps.push({ at: ended.duration_ms, text: endWords(ended), bad: ended.status >= 500 });
  return h("ol.events.timeline", steps.map(({ at, text, bad }, n) =>
    h("li", h("span.faint.number", n ? `+${duration(at / 1000)}` : clock(began)), h("span", { class: bad ? "bad" : "" }, text))));
}

function choice({ backend, reason, prefix, details }, before) {
  const again = before ? `Sent again: ${backend}` : backend;
  const cache = prefix ? `; in its cache: ${prefixWords(prefix)}` : "";
  return `${again} is chosen${reason && reason !== "match" ? ` (${reason})` : ""}${cache}${details ? costWords(details) : ""}`;
}

/** The scores of a traced decision: those of `cache_aware` are costs in ms. */
export function costWords({ strategy, score, losers }) {
  const known = losers.filter(([, theirs]) => theirs !== null).sort((a, b) => b[1] - a[1]).slice(0, 3);
  if (score === null || !known.length) return "";
  const written = strategy === "cache_aware" ? (each) => duration(-each / 1000) : count;
  const others = known.map(([replica, theirs]) => `${written(theirs)} at ${replica.split("@").at(-1)}`);
  return `; ${strategy === "cache_aware" ? "its cost is" : "its score is"} ${written(score)}, ${others.join(", ")}`;
}

function moveWords({ backend, moved }, before) {
  const why = moved.cause === "broken" ? `${before?.backend} broke it off` : `moved by ${moved.cause}`;
  return `The stream goes on at ${backend} (${why}); its client waits ${duration(moved.seconds)}${moved.tokens ? `, ${count(moved.tokens)} tokens are read again` : ""}`;
}

/** The load that ended while a request waited, as the events tell. */
function loadWords({ replica, began_ms: from, granted_ms: to }, began) {
  const done = live.events.find(({ event, target, time }) => event === "swap_done" && target === replica
    && time >= began + from / 1000 - 1 && time <= began + to / 1000 + 1);
  if (!done) return "";
  const start = live.events.find(({ event, target, time }) => event === "swap_started" && target === replica && time <= done.time);
  const stopped = start?.evict.length ? `, for which ${start.evict.map(model).join(", ")} stopped` : "";
  return `: ${model(replica)} was loaded${start ? ` in ${duration(done.time - start.time)}` : ""}${stopped}`;
}

function endWords({ status, code, message, tokens_out: tokens, decode_rate: rate, cost, outcome }) {
  if (status >= 400) return status === 499 ? "The client has left" : `It ends with ${status} ${code ?? ""}${message ? `: ${message}` : ""}`;
  const figures = [tokens === null ? "" : plural(tokens, "token"), rate ? `${count(rate)} tokens/s` : "", cost ? `cost ${money(cost)}` : ""];
  return `The answer is whole${outcome === "served" ? "" : ` (${outcome})`}: ${figures.filter(Boolean).join(", ") || "without figures"}`;
}

/** When the first token is expected at a candidate, in ms; null if the strategy does not say. */
const expected = ({ parts, backlog_s: backlog }) => (parts.own_ms === undefined ? null : parts.own_ms + 1000 * (backlog ?? parts.backlog_s ?? 0));

/** Why the chosen candidate is better than the next one, in words; null if the strategy does not say. */
export function choiceWords({ candidates, chosen, requirements }) {
  const able = candidates.filter((each) => !each.dropped_by);
  const mine = able.find(({ replica }) => replica === chosen);
  if (!mine) return null;
  if (able.length === 1) return `Only ${mine.backend} can serve it${candidates.length > 1 ? " now" : ""}.`;
  const here = expected(mine);
  const [other] = able.filter((each) => each !== mine && expected(each) !== null).sort((a, b) => expected(a) - expected(b));
  if (here === null || !other) return `${mine.backend} has the best score of ${able.length}.`;
  const told = `The first token is expected after ${duration(here / 1000)} at ${mine.backend} and after ${duration(expected(other) / 1000)} at ${other.backend}`;
  const reasons = differences(mine, other, requirements?.estimated_tokens);
  if (expected(other) < here) {
    const harm = (other.parts.harm_ms ?? 0) - (mine.parts.harm_ms ?? 0);
    return `${told}; there it would delay other requests${harm > 0 ? ` by ${duration(harm / 1000)} more` : ""}.`;
  }
  return `${told}${reasons.length ? `, because ${reasons.join(", and ")}` : ""}.`;
}

function differences(mine, other, tokens) {
  const [cached, there] = [mine.cached_tokens ?? 0, other.cached_tokens ?? 0];
  return [
    cached > there ? `${count(cached)}${tokens ? ` of ${count(tokens)}` : ""} tokens are cached at ${mine.backend} and ${there ? count(there) : "none"} at ${other.backend}` : "",
    other.evicts.length ? `${other.backend} would have to stop ${other.evicts.map(model).join(", ")} first` : "",
    (other.backlog_s ?? 0) - (mine.backlog_s ?? 0) > MUCH_LATER_S ? `${other.backend} could begin ${duration(other.backlog_s - mine.backlog_s)} later` : "",
    mine.ms_per_token && other.ms_per_token > SLOWER * mine.ms_per_token
      ? `${other.backend} reads ${count(1000 / other.ms_per_token)} tokens/s and ${mine.backend} ${count(1000 / mine.ms_per_token)}` : "",
  ].filter(Boolean);
}
