// Begins the page: which view is shown, and for whom.

import { h, look as dress, put, show } from "./dom.js";
import { key, missing } from "./gateway.js";
import { live, start, startAgain, watch } from "./live.js";
import { duration, plural } from "./words.js";
import { chatView } from "./chat/view.js";
import { logsView } from "./logs.js";
import { operateView } from "./operate/view.js";
import { overviewView } from "./overview/view.js";
import { palette } from "./palette.js";
import { requestsView } from "./requests/view.js";
import { usageView } from "./usage/view.js";

const VIEWS = { overview: overviewView, requests: requestsView, chat: chatView, operate: operateView, usage: usageView, logs: logsView };
const FOR_CALLERS = new Set(["chat", "usage"]);
const at = (id) => document.getElementById(id);
const made = new Map();

function wanted() {
  const name = location.hash.slice(1).split("/")[0];
  if (live.access === "caller") return FOR_CALLERS.has(name) ? name : "chat";
  return name in VIEWS ? name : "overview";
}

/** Shows the wanted view. A view is made when it is first shown, and told when it is shown and left. */
function turn() {
  if (!live.access || live.access === "none") return;
  const name = wanted();
  if (!made.has(name)) {
    const view = VIEWS[name]();
    made.set(name, view);
    at("views").append(h("section", { id: `view-${name}`, "aria-label": name, hidden: true }, view.node));
  }
  for (const [each, view] of made) {
    const section = at(`view-${each}`);
    if (section.hidden && each === name) view.shown?.();
    if (!section.hidden && each !== name) view.left?.();
    show(section, each === name);
  }
  for (const link of at("tabs").children) {
    const target = link.hash.slice(1);
    if (target === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    show(link, live.access === "operator" || FOR_CALLERS.has(target));
  }
  made.get(name).update?.();
}

function head() {
  show(at("key"), live.access === "none");
  const status = live.status;
  if (status && live.access === "operator") {
    put(at("headline"), `${status.version} · up ${duration(status.uptime_s)} · ${plural(status.requests, "live request")}`);
  }
  const lost = live.problem && live.access !== "caller";
  const found = missing.size ? `live, without ${[...missing].join(", ")}: the plugin “operations” is disabled` : "live";
  put(at("connection"), lost ? live.problem : live.access === "caller" ? "a caller's key" : found);
  dress(at("connection"), `dot ${lost ? "bad" : "good"}`);
}

at("key").onsubmit = (event) => {
  event.preventDefault();
  key.set(at("secret").value);
  at("secret").value = "";
  startAgain();
};
window.onhashchange = () => {
  turn();
  made.get(wanted())?.turned?.();
  at("views").focus({ preventScroll: true });
};
at("find").onclick = palette(() => [...at("tabs").children].filter(({ hidden }) => !hidden));
watch(() => { head(); turn(); });
start();
