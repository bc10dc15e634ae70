// The candidates of a decision, with their scores and why some were dropped.

import { h } from "../dom.js";
import { count, milliseconds } from "../words.js";

export function candidates({ candidates: all, chosen, error, reason, attempted }) {
  const parts = [...new Set(all.flatMap(({ parts: each }) => Object.keys(each)))];
  const head = ["candidate", "score", ...parts, "free slots", "waits", "cached"];
  const told = error ? h("p.busy", error.message)
    : h("p.small.faint", `${chosen}: ${reason}${attempted.length > 1 ? `, after ${attempted.slice(0, -1).join(", ")}` : ""}`);
  return h("div.stack.tight", told, h("div.scroll", h("table",
    h("thead", h("tr", head.map((name, n) => h("th", { class: n ? "number" : "", scope: "col" }, name.replaceAll("_", " "))))),
    h("tbody", all.map((each) => h("tr", { class: each.dropped_by ? "faint" : "" },
      h("td", each.replica === chosen ? h("b", each.replica) : each.replica,
        each.dropped_by ? h("div.small.busy", `${each.dropped_by}: ${each.why}`) : null,
        each.evicts.length ? h("div.small.busy", `stops ${each.evicts.join(", ")}`) : null),
      number(each.score), parts.map((part) => number(each.parts[part])),
      number(each.free), h("td.number", each.backlog_s === null ? "" : milliseconds(each.backlog_s * 1000)),
      number(each.cached_tokens)))))));
}

const number = (value) => h("td.number", value === null || value === undefined ? "" : count(value));
