// The phases of a request as bars.

import { h } from "../dom.js";
import { duration } from "../words.js";

const STEPS = [["routed", "routing", "routing"], ["granted", "waiting for its turn", "queued"],
  ["sent", "connecting", "connecting"], ["first_byte", "reading the prompt", "prompt"], ["ended", "answering", "answering"]];

/** The phases of an ended request's record, whose times are seconds of one clock. */
export function phasesOf(record) {
  const phases = [];
  let at = record.arrived;
  for (const [step, name, look] of STEPS) {
    const until = record[step];
    if (until === null || until === undefined) continue;
    if (until - at > 0.0005) phases.push({ name: step === "ended" && record.first_byte === null ? "until it failed" : name,
      look: step === "ended" && record.first_byte === null ? "failed" : look, from: at - record.arrived, to: until - record.arrived });
    at = Math.max(at, until);
  }
  return phases;
}

/** The phases of the attempts of a live request, whose times are milliseconds since it was whole. */
export function phasesOfAttempts(attempts) {
  return attempts.flatMap((each) => {
    const steps = { arrived: each.began_ms, granted: each.granted_ms, sent: each.sent_ms, first_byte: each.first_byte_ms, ended: each.ended_ms };
    const seconds = Object.fromEntries(Object.entries(steps).map(([name, ms]) => [name, ms === null ? null : ms / 1000]));
    const begun = phasesOf(seconds).map((phase) => ({ ...phase, from: phase.from + seconds.arrived, to: phase.to + seconds.arrived }));
    const last = begun.at(-1);
    if (each.outcome === "live" && last && last.look === "failed") Object.assign(last, each.sent_ms === null
      ? { name: "waiting for its turn", look: "queued" } : { name: "reading the prompt", look: "prompt" });
    return attempts.length > 1 ? begun.map((phase) => ({ ...phase, name: `${each.backend}: ${phase.name}` })) : begun;
  });
}

export function bars(phases) {
  const whole = Math.max(0.001, ...phases.map(({ to }) => to));
  return h("div.phases", phases.map(({ name, look, from, to }) => {
    const span = h("span", { class: `span ${look}` });
    span.style.left = `${(from / whole) * 100}%`;
    span.style.width = `${((to - from) / whole) * 100}%`;
    return h("div.phase", h("span", name), h("div.track", span), h("span.number", duration(to - from)));
  }));
}
