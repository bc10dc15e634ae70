// What an engine had of a prompt in its prefix cache, and why not more.

import { count } from "../words.js";

const WHYS = {
  new: "no engine has had more of it", system: "its system prompt is not one of earlier requests", tools: "its tools are not those of earlier requests",
  evicted: "the rest was evicted", moved: "another engine has more of it", restarted: "the engine has started since",
};

/** `prefix` of an explanation or a record, in words; null without one. */
export function prefixWords(prefix) {
  if (!prefix) return null;
  const [why, number] = prefix.why.split(":");
  const reason = why === "message" ? `message ${Number(number) + 1} is the first that it does not know` : WHYS[why] ?? prefix.why;
  const lost = prefix.lost ? `, so ${count(prefix.lost)} are read again` : "";
  return `${count(prefix.cached)} of ${count(prefix.tokens)} tokens${prefix.cached < prefix.tokens ? `: ${reason}${lost}` : ""}`;
}
