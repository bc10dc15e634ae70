// Operate: backends, the configuration, and what the gateway would do.

import { action } from "../actions.js";
import { named } from "../colours.js";
import { finder, h, head, look, nothing, put, show, table } from "../dom.js";
import { part, post } from "../gateway.js";
import { live, lookSoon } from "../live.js";
import { milliseconds, tone } from "../words.js";
import { batchList } from "./batches.js";
import { explainers } from "./explain.js";
import { reloader } from "./reload.js";

export function operateView() {
  const search = finder("Find a backend");
  const rows = table(["backend", "driver", "health", "models", "#live", "#first byte", ""],
    nothing("No backends", "Add one to enginehouse.toml and reload."));
  const batches = batchList();
  const node = h("div", head("Backends", search), h("div.sheet", rows.node),
    batches.node, reloader(), explainers());
  search.oninput = update;

  function update() {
    if (!live.status) return;
    const text = search.value.trim().toLowerCase();
    const found = live.status.backends.filter((each) => !text || [each.name, each.driver, ...each.models].some((name) => name.toLowerCase().includes(text)));
    rows.rows(found, (each) => each.name, backendRow);
    show(search, live.status.backends.length > 6);
  }
  return { node, update, shown: batches.shown, left: batches.left };
}

function backendRow({ name }, cells) {
  cells.driver.className = "faint";
  cells.health.className = cells.models.className = "wide";
  const word = h("span.chip");
  const why = h("div.why");
  cells.health.append(word, why);
  let draining = false;
  const path = `/api/backends/${part(name)}`;
  const drain = action({ label: "Drain", doing: "Draining", ask: "New requests go to other backends; streams move.", act: async () => {
    const { live: left } = await post(`${path}/drain`);
    lookSoon();
    return `Draining, ${left} left`;
  } });
  const undrain = action({ label: "Undrain", doing: "Waiting", done: "Accepts requests again", act: async () => { await post(`${path}/undrain`); lookSoon(); } });
  const log = h("a", { href: `#logs/${part(name)}` }, "Log");
  const node = h("tr", h("td.wide", named(h("b"), name)), Object.values(cells),
    h("td.wide", h("div.row", drain.node, undrain.node, log)));
  return { node, update(each) {
    draining = each.draining;
    const said = each.state !== "ready" ? each.state : draining ? "draining" : each.health === "healthy" ? "ready" : each.health === "unhealthy" ? "unreachable" : each.health;
    put(cells.driver, each.driver);
    put(word, said);
    look(word, `chip ${tone(said)}`);
    put(why, each.health === "unhealthy" || each.state === "failed" ? each.last_error : "");
    put(cells.models, each.models.slice(0, 3).join(", ") + (each.models.length > 3 ? ` and ${each.models.length - 3} more` : ""));
    put(cells.live, each.pending || "");
    put(cells["first byte"], each.avg_latency_ms ? milliseconds(each.avg_latency_ms) : "");
    show(drain.node, !draining || drain.isBusy());
    show(undrain.node, draining || undrain.isBusy());
    show(log, !each.url);
  } };
}
