// The overview: how the gateway is, every model, and figures over time.

import { finder, h, head, keyed, nothing, phone, put, show, wantedPart } from "../dom.js";
import { live } from "../live.js";
import { bytes, count, plural } from "../words.js";
import { meter, modelCard, modelsOf } from "./cards.js";
import { charts } from "./charts.js";
import { eventList } from "./events.js";
import { hostCard, hostsOf } from "./hosts.js";

const MOST_CARDS = phone ? 6 : 24;

export function overviewView() {
  const tiles = h("div.tiles");
  const memory = h("div.tiles");
  const hosts = h("div.hosts");
  const search = finder("Find a model or backend");
  const cards = h("div.cards");
  const more = h("button");
  const none = h("div.none.sheet");
  const events = eventList();
  const over = charts();
  let all = false;
  let jumped = "";
  const node = h("div.stack", h("h2.sr", "Now"), tiles, hosts, memory,
    h("div", head("Models", search), cards, none, h("p", more)),
    over.node,
    events.node);
  search.oninput = update;
  more.onclick = () => { all = !all; update(); };

  function update() {
    const { status } = live;
    if (!status) return;
    const models = modelsOf(status).sort((a, b) => b.bad - a.bad);
    jump();
    keyed(tiles, facts(status, models), (each) => each.name, tile);
    keyed(memory, places(status), (each) => each.name, place);
    keyed(hosts, hostsOf(status), (each) => each.host, hostCard);
    show(hosts, hosts.childElementCount);
    show(memory, memory.childElementCount);
    const found = models.filter((each) => fits(each, search.value.trim().toLowerCase()));
    const shown = all ? found : found.slice(0, MOST_CARDS);
    keyed(cards, shown, (each) => each.name, modelCard);
    show(more, found.length > MOST_CARDS);
    put(more, all ? "Show fewer" : `Show ${found.length - shown.length} more`);
    show(search, models.length > 6 || search.value);
    show(none, !found.length);
    if (!found.length) empty(models.length);
    events.update();
  }

  /** Shows the model that the address names, once. */
  function jump() {
    const wanted = wantedPart();
    if (wanted === jumped) return;
    jumped = wanted;
    search.value = wanted;
    search.scrollIntoView({ block: "center" });
  }

  function empty(known) {
    none.replaceChildren(known ? nothing("No model matches", "Change what you search for.")
      : nothing("No models yet", "Add a backend or a model to enginehouse.toml, or start with: enginehouse run FOLDER"));
  }

  return { node, update, shown: over.start, left: over.stop };
}

const fits = ({ name, replicas }, text) => !text || name.toLowerCase().includes(text)
  || replicas.some(({ backend }) => backend.toLowerCase().includes(text));

function facts(status, models) {
  const is = (...words) => status.replicas.filter(({ condition }) => words.includes(condition.word)).length;
  const waiting = status.replicas.reduce((sum, each) => sum + each.waiting, 0);
  const trouble = is("failed", "hung", "unreachable", "refused");
  return [
    { name: "live requests", value: count(status.requests) },
    { name: "waiting", value: count(waiting), tone: waiting ? "busy" : "" },
    { name: plural(models.length, "model").replace(/^\S+ /, ""), value: count(models.length) },
    { name: "replicas ready", value: `${is("ready")} of ${status.replicas.length}` },
    { name: "in trouble", value: count(trouble), tone: trouble ? "bad" : "" },
  ];
}

function tile({ name }) {
  const value = h("b");
  return { node: h("div.sheet.tile", value, h("span", name)), update: (each) => {
    put(value, each.value);
    value.className = each.tone ?? "";
  } };
}

function places({ gpus }) {
  return gpus.map(({ host, gpu, name, used, total }) => ({ name: `${host === "local" ? "" : `${host} `}GPU ${gpu} · ${name}`, used, total }));
}

function place() {
  const bar = meter();
  return { node: h("div.sheet.tile", bar.node), update: ({ name, used, total }) =>
    bar.set(used / total, name, `${bytes(used)} of ${bytes(total)}`) };
}
