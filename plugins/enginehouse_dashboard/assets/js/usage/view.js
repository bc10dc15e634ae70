// Usage: what each key has used, and the keys. A key that is not an admin's sees what it has used itself.

import { h, put, show, table } from "../dom.js";
import { read } from "../gateway.js";
import { live } from "../live.js";
import { count, duration, money, plural } from "../words.js";
import { keyList } from "./keys.js";

const SPANS = { "24 hours": "1d", "7 days": "7d", "30 days": "30d", "a year": "365d" };
const MOST_ROWS = 100;

export function usageView() {
  const since = h("select", { "aria-label": "Since", onchange: renew }, Object.entries(SPANS).map(([name, span]) => new Option(name, span)));
  const rows = table(["day", "key", "model", "#requests", "#failed", "#tokens in", "#cached", "#tokens out", "#engine time", "#cost"],
    h("span", {}, h("b", {}, "No usage"), "Usage is recorded if there are keys, or with usage.store."));
  const told = h("p", { class: "small faint", role: "status" });
  const keys = keyList();
  const node = h("div", {}, h("div", { class: "head" }, h("h2", {}, "Usage"), since), h("div", { class: "sheet" }, rows.node, told), keys.node);
  since.value = "7d";

  async function renew() {
    const operator = live.access === "operator";
    show(keys.node, operator);
    if (operator) keys.renew();
    try {
      const query = new URLSearchParams({ by: operator ? "key,model" : "model,day", since: since.value });
      const answer = operator ? await read(`/api/usage?${query}`) : await read(`/v1/usage?${query}`);
      const found = answer.rows.sort((a, b) => (b.day ?? "").localeCompare(a.day ?? "") || b.tokens_in + b.tokens_out - a.tokens_in - a.tokens_out);
      rows.rows(found.slice(0, MOST_ROWS), (each) => `${each.day} ${each.key} ${each.model}`, usageRow);
      const { requests, tokens_in: sent, tokens_out: answered, cost } = answer.total;
      const parts = [plural(requests, "request"), `${count(sent)} tokens in`, `${count(answered)} out`, cost ? `cost ${money(cost)}` : ""];
      put(told, requests ? `In total ${parts.filter(Boolean).join(", ")}` : "");
    } catch (error) {
      put(told, error.message);
    }
  }
  return { node, shown: renew };
}

function usageRow() {
  const td = (label, is = "") => h("td", { "data-label": label, class: is });
  const cells = { day: td("day"), key: td("key"), model: td("model"), requests: td("requests", "number"), failed: td("failed", "number"),
    tokens_in: td("tokens in", "number"), tokens_cached: td("cached", "number"), tokens_out: td("tokens out", "number"),
    seconds: td("engine time", "number"), cost: td("cost", "number") };
  return { node: h("tr", {}, Object.values(cells)), update(row) {
    put(cells.day, row.day ?? "all");
    put(cells.key, row.key === null ? "own" : row.key || "no key");
    put(cells.model, row.model || "none");
    for (const name of ["requests", "failed", "tokens_in", "tokens_cached", "tokens_out"]) put(cells[name], count(row[name]));
    put(cells.seconds, duration(row.seconds));
    put(cells.cost, money(row.cost));
  } };
}
