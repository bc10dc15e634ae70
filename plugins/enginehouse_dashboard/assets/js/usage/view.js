// Usage: what each key has used, what is left of its limits, and the keys. A caller's key sees its own.

import { choice } from "../choice.js";
import { named } from "../colours.js";
import { h, put, show, table } from "../dom.js";
import { read, readIfThere } from "../gateway.js";
import { live } from "../live.js";
import { count, day, duration, money, plural } from "../words.js";
import { COUNTED, usageChart } from "./chart.js";
import { keyList } from "./keys.js";
import { limitBars } from "./limits.js";

const SPANS = { "24 hours": "1d", "7 days": "7d", "30 days": "30d", "a year": "365d" };
const LOOK_MS = 15000;

export function usageView() {
  const since = h("select", { "aria-label": "Since", onchange: renew }, Object.entries(SPANS).map(([name, span]) => new Option(name, span)));
  const by = choice("Bars", { "by key": "key", "by model": "model" }, renew);
  const what = choice("Counted", Object.fromEntries(Object.keys(COUNTED).map((name) => [name, name])), () => draw());
  const chart = usageChart();
  const rows = table(["day", "key", "model", "#requests", "#failed", "#tokens in", "#cached", "#tokens out", "#engine time", "#cost"],
    h("span", {}, h("b", {}, "No usage"), "Usage is recorded if there are keys, or with usage.store."));
  const told = h("p", { class: "small faint", role: "status" });
  const keys = keyList();
  const own = limitBars();
  const left = h("div", { class: "stack tight left" }, h("h2", {}, "What is left"), h("div", { class: "sheet" }, own.node));
  const node = h("div", {}, h("div", { class: "head" }, h("h2", {}, "Usage"), h("div", { class: "row" }, by.node, what.node, since)), left,
    h("div", { class: "sheet stack tight" }, chart.node, rows.node, told), keys.node);
  let daily = [];
  let timer = null;
  since.value = "7d";
  show(left, false);

  async function renew() {
    clearTimeout(timer);
    timer = setTimeout(renew, LOOK_MS);
    if (document.hidden) return;
    const operator = live.access === "operator";
    show(keys.node, operator);
    show(by.node, operator);
    const page = (fields) => {
      const query = new URLSearchParams({ by: fields, since: since.value });
      return operator ? read(`/api/usage?${query}`) : read(`/v1/usage?${query}`);
    };
    try {
      const [answer, days, limits] = await Promise.all([page(operator ? "key,model" : "model,day"), page(`${operator ? by.value() : "model"},day`).catch(() => ({ rows: [] })),
        operator ? { limits: [] } : readIfThere("/v1/limits", { limits: [] })]);
      const found = answer.rows.sort((a, b) => (b.day ?? "").localeCompare(a.day ?? "") || b.tokens_in + b.tokens_out - a.tokens_in - a.tokens_out);
      rows.rows(found, (each) => `${each.day} ${each.key} ${each.model}`, usageRow);
      daily = days.rows;
      show(left, limits.limits.length);
      own.update(limits.limits);
      draw();
      const { requests, tokens_in: sent, tokens_out: answered, cost } = answer.total;
      const parts = [plural(requests, "request"), `${count(sent)} tokens in`, `${count(answered)} out`, cost ? `cost ${money(cost)}` : ""];
      put(told, requests ? `In total ${parts.filter(Boolean).join(", ")}` : "");
      if (operator) await keys.renew();
    } catch (error) {
      put(told, error.message);
    }
  }

  function draw() {
    chart.draw(daily, live.access === "operator" ? by.value() : "model", what.value());
  }
  return { node, shown: renew, left: () => clearTimeout(timer) };
}

function usageRow() {
  const td = (label, is = "") => h("td", { "data-label": label, class: is });
  const cells = { day: td("day"), key: td("key"), model: td("model"), requests: td("requests", "number"), failed: td("failed", "number"),
    tokens_in: td("tokens in", "number"), tokens_cached: td("cached", "number"), tokens_out: td("tokens out", "number"),
    seconds: td("engine time", "number"), cost: td("cost", "number") };
  return { node: h("tr", {}, Object.values(cells)), update(row) {
    put(cells.day, row.day ? day(Date.parse(`${row.day}T12:00:00`) / 1000) : "all");
    if (row.key) named(cells.key, row.key);
    else put(cells.key, row.key === null ? "own" : "no key");
    if (row.model) named(cells.model, row.model);
    else put(cells.model, "none");
    for (const name of ["requests", "failed", "tokens_in", "tokens_cached", "tokens_out"]) put(cells[name], count(row[name]));
    put(cells.seconds, duration(row.seconds));
    put(cells.cost, money(row.cost));
  } };
}
