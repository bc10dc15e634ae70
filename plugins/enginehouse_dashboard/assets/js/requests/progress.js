// How far a live request is.

import { live } from "../live.js";

/** How much of the load that a request waits for has passed; null if it waits for none. */
export function loaded({ phase, replica, waits_for: others }) {
  if (phase !== "loading") return null;
  const shares = (live.status?.replicas ?? []).filter((each) => each.replica === replica || others.includes(each.replica))
    .map(({ condition }) => condition.progress).filter((each) => each !== undefined);
  return shares.length ? Math.max(...shares) : null;
}

/** What a live request does, and how far it is. */
export function phaseWords({ phase, position, progress, output_tokens: tokens }, share = null) {
  if (phase === "loading" && share !== null) return `loading ${Math.round(share * 100)} %`;
  if (phase === "serving") return tokens ? "answering" : tokens === 0 ? "reading the prompt" : "with its engine";
  if (progress) return `${phase}: ${progress}`;
  return position === null ? phase : `${phase}, number ${position + 1}`;
}

/** The tokens a second of a live request, from looks at it; null before the second one that saw tokens. */
export function rateMeter() {
  let before = null;
  let rate = null;
  return ({ output_tokens: tokens, age_ms: age, phase }) => {
    if (!tokens || phase !== "serving") return null;
    if (before && age > before.age) {
      const now = Math.max(0, (tokens - before.tokens) / ((age - before.age) / 1000));
      rate = rate === null ? now : (rate + now) / 2;
    }
    before = { tokens, age };
    return rate;
  };
}
