// Operate: backends, the configuration, and what the gateway would do.

import { action } from "../actions.js";
import { named } from "../colours.js";
import { h, look, put, show, table } from "../dom.js";
import { part, post } from "../gateway.js";
import { live, lookSoon } from "../live.js";
import { milliseconds, tone } from "../words.js";
import { explainers } from "./explain.js";
import { reloader } from "./reload.js";


export function operateView() {
  const search = h("input", { type: "search", placeholder: "Find a backend", "aria-label": "Find a backend" });
  const rows = table(["backend", "driver", "health", "models", "#live", "#first byte", ""],
    h("span", {}, h("b", {}, "No backends"), "Add one to enginehouse.toml and reload."));
  const node = h("div", {}, h("div", { class: "head" }, h("h2", {}, "Backends"), search), h("div", { class: "sheet" }, rows.node),
    reloader(), explainers());
  search.addEventListener("input", update);

  function update() {
    if (!live.status) return;
    const text = search.value.trim().toLowerCase();
    const found = live.status.backends.filter((each) => !text || [each.name, each.driver, ...each.models].some((name) => name.toLowerCase().includes(text)));
    rows.rows(found, (each) => each.name, backendRow);
    show(search, live.status.backends.length > 6);
  }
  return { node, update };
}

function backendRow({ name }) {
  const td = (label, is = "") => h("td", { "data-label": label, class: is });
  const cells = { driver: td("driver", "faint"), health: td("health"), models: td("models", "wide"), live: td("live", "number"), latency: td("first byte", "number") };
  const word = h("span", { class: "chip" });
  const why = h("div", { class: "why" });
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
  const node = h("tr", {}, h("td", { class: "wide" }, named(h("b"), name)), Object.values(cells),
    h("td", { class: "wide" }, h("div", { class: "row" }, drain.node, undrain.node, log)));
  return { node, update(each) {
    draining = each.draining;
    const said = each.state !== "ready" ? each.state : draining ? "draining" : each.health === "healthy" ? "ready" : each.health === "unhealthy" ? "unreachable" : each.health;
    put(cells.driver, each.driver);
    put(word, said);
    look(word, `chip ${tone(said)}`);
    put(why, each.health === "unhealthy" || each.state === "failed" ? each.last_error : "");
    put(cells.models, each.models.slice(0, 3).join(", ") + (each.models.length > 3 ? ` and ${each.models.length - 3} more` : ""));
    put(cells.live, each.pending || "");
    put(cells.latency, each.avg_latency_ms ? milliseconds(each.avg_latency_ms) : "");
    show(drain.node, !draining || drain.isBusy());
    show(undrain.node, draining || undrain.isBusy());
    show(log, !each.url);
  } };
}
