// Usage: what each key has used, what is left of its limits, and the keys. A caller's key sees its own.

import { choice } from "../choice.js";
import { named } from "../colours.js";
import { h, head, nothing, put, show, table } from "../dom.js";
import { read, readIfThere } from "../gateway.js";
import { live, regularly } from "../live.js";
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
    nothing("No usage", "Usage is recorded if there are keys, or with usage.store."));
  const told = h("p.small.faint", { role: "status" });
  const keys = keyList();
  const own = limitBars();
  const left = h("div.stack.tight.left", h("h2", "What is left"), h("div.sheet", own.node));
  const node = h("div", head("Usage", h("div.row", by.node, what.node, since)), left,
    h("div.sheet.stack.tight", chart.node, rows.node, told), keys.node);
  let daily = [];
  since.value = "7d";
  show(left, false);

  async function renew() {
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
  return { node, turned: renew, ...regularly(LOOK_MS, renew) };
}

function usageRow(_, cells) {
  const of = h("td", { "data-label": "day" });
  return { node: h("tr", of, Object.values(cells)), update(row) {
    put(of, row.day ? day(Date.parse(`${row.day}T12:00:00`) / 1000) : "all");
    if (row.key) named(cells.key, row.key);
    else put(cells.key, row.key === null ? "own" : "no key");
    if (row.model) named(cells.model, row.model);
    else put(cells.model, "none");
    for (const name of ["requests", "failed", "tokens in", "tokens out"]) put(cells[name], count(row[name.replace(" ", "_")]));
    put(cells.cached, count(row.tokens_cached));
    put(cells["engine time"], duration(row.seconds));
    put(cells.cost, money(row.cost));
  } };
}
