// A card for each model: the condition of its replicas, their memory and their slots, and what can be done.

import { action } from "../actions.js";
import { named } from "../colours.js";
import { h, keyed, look, put, show } from "../dom.js";
import { part, post } from "../gateway.js";
import { live, lookSoon } from "../live.js";
import { bytes, conditionText, count, milliseconds, plural, tone } from "../words.js";

const MOST_REPLICAS = 4;
const LOADED = new Set(["ready", "starting", "sleeping"]);
/** The words of a model whose replicas differ: the first one that any has. */
const ORDER = ["ready", "draining", "loading", "waiting for room", "sleeping", "stopping", "refused", "unknown", "stopped", "unreachable", "hung", "failed"];

/** The models of a status, each with its replicas and their backends. */
export function modelsOf(status) {
  const backends = new Map(status.backends.map((each) => [each.name, each]));
  const budgets = new Map(status.hosts.map((each) => [each.host, each.budget]));
  const models = new Map();
  for (const replica of status.replicas) {
    const model = models.get(replica.model) ?? { name: replica.model, replicas: [] };
    model.replicas.push({ ...replica, server: backends.get(replica.backend), budget: budgets.get(replica.host) });
    models.set(replica.model, model);
  }
  for (const each of models.values()) each.bad = each.replicas.some(({ condition }) => tone(condition.word) === "bad");
  return [...models.values()];
}

function summary({ replicas }) {
  if (replicas.length === 1) return replicas[0].condition;
  const word = ORDER.find((each) => replicas.some(({ condition }) => condition.word === each));
  return replicas.find(({ condition }) => condition.word === word).condition;
}

export function modelCard({ name }) {
  const title = named(h("h3"), name);
  const chip = h("span.chip");
  const facts = h("p.small.faint");
  const load = h("div.fill");
  const progress = h("div.bar", { role: "progressbar", "aria-label": `loading ${name}` }, load);
  const replicas = h("div");
  const more = h("small.faint");
  const path = `/api/models/${part(name)}`;
  const loader = action({ label: "Load", doing: "Loading", done: "Ready",
    act: async () => { lookSoon(); await post(`${path}/load`); lookSoon(); } });
  const unloader = action({ label: "Unload", doing: "Unloading", done: "Unloaded", ask: "Waiting requests are refused, live ones may finish.",
    act: async () => { lookSoon(); await post(`${path}/unload`); lookSoon(); } });
  const chat = h("a", { href: `#chat/${part(name)}` }, h("button", { tabIndex: -1 }, "Chat"));
  const node = h("article.sheet.card", { "aria-label": name },
    h("div.title", title, chip), facts, progress, replicas, more,
    h("div.feet", loader.node, unloader.node, chat));
  unloader.button.setAttribute("aria-label", `Unload ${name}`);
  loader.button.setAttribute("aria-label", `Load ${name}`);

  function update(model) {
    const condition = summary(model);
    put(chip, conditionText(condition));
    look(chip, `chip ${tone(condition.word)}`);
    put(facts, abilities(model));
    show(progress, condition.word === "loading" && condition.progress !== undefined);
    load.style.width = `${(condition.progress ?? 0) * 100}%`;
    progress.setAttribute("aria-valuenow", Math.round((condition.progress ?? 0) * 100));
    const sorted = [...model.replicas].sort(byTrouble);
    const shown = sorted.slice(0, MOST_REPLICAS);
    const rest = sorted.slice(MOST_REPLICAS);
    keyed(replicas, shown.map((each) => ({ ...each, alone: model.replicas.length === 1 })), (each) => each.replica, replicaRow);
    put(more, `and ${plural(rest.length, "more replica")}: ${words(rest)}`);
    show(more, rest.length);
    const managed = model.replicas.filter(({ server }) => !server.url || server.driver === "ollama" || server.driver === "lmstudio");
    const loaded = managed.some(({ state }) => LOADED.has(state));
    show(loader.node, managed.length && (!loaded || loader.isBusy()));
    show(unloader.node, managed.length && (loaded || unloader.isBusy()) && !loader.isBusy());
  }
  return { node, update };
}

const trouble = ({ condition }) => ({ bad: 0, busy: 1, faint: 2, good: 3 })[tone(condition.word)];
const byTrouble = (a, b) => trouble(a) - trouble(b);

function words(replicas) {
  const counts = new Map();
  for (const { condition } of replicas) counts.set(condition.word, (counts.get(condition.word) ?? 0) + 1);
  return [...counts].map(([word, n]) => `${n} ${word}`).join(", ");
}

function abilities({ replicas }) {
  const { capabilities, server } = replicas[0];
  const can = ["vision", "tools", "json_mode", "embeddings"].filter((each) => capabilities[each]).map((each) => each.replace("_", " "));
  const length = capabilities.context_length ? `${count(capabilities.context_length)} tokens of context` : "";
  return [server.driver, length, ...can].filter(Boolean).join(" · ");
}

function replicaRow() {
  const where = h("span.cut");
  const on = h("small.faint");
  const word = h("span.chip");
  const figures = h("span.wide.small.faint");
  const why = h("span.wide.why");
  const slots = meter();
  const memory = meter();
  const node = h("div.replica", h("span.cut", where, " ", on), word, figures, why, slots.node, memory.node);
  slots.node.classList.add("wide");
  memory.node.classList.add("wide");
  return { node, update({ alone, backend, model, host, condition, server, state, slots: most, memory: size, budget, waiting }) {
    named(where, backend);
    put(on, host === "local" ? "" : `on ${host}`);
    where.title = backend;
    show(where, !alone || backend !== model);
    show(word, !alone);
    put(word, conditionText(condition));
    look(word, `chip ${tone(condition.word)}`);
    const told = [plural(server.pending, "request"), waiting ? `${waiting} waiting` : "",
      server.avg_latency_ms ? `${milliseconds(server.avg_latency_ms)} to the first byte` : "",
      server.error_share ? `${Math.round(server.error_share * 100)} % bad answers` : ""];
    put(figures, told.filter(Boolean).join(" · "));
    put(why, condition.why ?? "");
    show(why, condition.why);
    slots.set(most ? server.pending / most : null, "slots", `${server.pending} of ${most}`);
    const held = LOADED.has(state);
    memory.set(size && budget ? (held ? size / budget : 0) : null, held ? "memory" : "memory when loaded", `${bytes(size)} of ${bytes(budget)}`);
  } };
}

/** A bar with a name and its figures; hidden without a share. */
export function meter() {
  const fill = h("div.fill");
  const name = h("span");
  const told = h("span");
  const node = h("div.meter", h("div.row.spread", name, told), h("div.bar", fill));
  return { node, set(share, label, text, good = false) {
    show(node, share !== null);
    if (share === null) return;
    fill.style.width = `${Math.min(100, share * 100)}%`;
    look(fill, `fill ${share > 0.95 && !good ? "busy" : ""}`);
    put(name, label);
    put(told, text);
  } };
}
