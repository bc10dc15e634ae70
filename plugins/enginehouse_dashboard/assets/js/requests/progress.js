// How far a live request is.

import { live } from "../live.js";

/** How much of the load that a request waits for has passed; null if it waits for none. */
export function loaded({ phase, replica, waits_for: others }) {
  if (phase !== "loading") return null;
  const shares = (live.status?.replicas ?? []).filter((each) => each.replica === replica || others.includes(each.replica))
    .map(({ condition }) => condition.progress).filter((each) => each !== undefined);
  return shares.length ? Math.max(...shares) : null;
}

/** How much of its prompt an engine has read by now at its usual pace; null if that is not known. */
export function promptShare({ phase, output_tokens: tokens, age_ms: age, attempts, explanation }) {
  const last = attempts?.at(-1);
  const pace = explanation?.candidates.find(({ replica }) => replica === last?.replica)?.ms_per_token;
  if (phase !== "serving" || tokens || !pace || last.sent_ms === null || last.first_byte_ms !== null) return null;
  const length = (last.prefix?.tokens ?? explanation.requirements.estimated_tokens) - (last.prefix?.cached ?? 0);
  return length > 0 ? Math.min(0.99, (age - last.sent_ms) / (length * pace)) : null;
}

export function phaseWords({ phase, position, progress, output_tokens: tokens }, share = null) {
  if (phase === "loading" && share !== null) return `loading ${Math.round(share * 100)} %`;
  if (phase === "serving" && share !== null) return `reading the prompt, about ${Math.round(share * 100)} %`;
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
