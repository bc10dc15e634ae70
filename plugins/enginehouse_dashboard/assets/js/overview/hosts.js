// Hosts: what is loaded there, how much of their memory it takes, and what would stop for another model.

import { hueOf, named } from "../colours.js";
import { h, keyed, put, show } from "../dom.js";
import { post } from "../gateway.js";
import { live } from "../live.js";
import { bytes } from "../words.js";

const MOST_ASKED = 12;
const RESTS = new Set(["stopped", "failed"]);

export const hostsOf = (status) => status.hosts.filter(({ budget }) => budget);

export function hostCard({ host }) {
  const figures = h("span.small.faint.number");
  const bar = h("div.bar.tall", { role: "img" });
  const list = h("p.key");
  const plan = h("ul.small.plan");
  const asked = h("details", h("summary", "What another model would stop"), plan);
  const node = h("article.sheet.stack.tight", { "aria-label": `host ${host}` },
    h("div.row.spread", h("h3", `Host ${host}`), figures), bar, list, asked);
  let now = null;
  asked.ontoggle = () => { if (asked.open) ask(); };

  function update(each) {
    now = each;
    const held = here().filter(({ state }) => !RESTS.has(state))
      .map(({ model, replica }) => ({ name: model, replica, size: each.replicas[replica] ?? 0 }));
    put(figures, `${bytes(each.used)} of ${bytes(each.budget)}`);
    keyed(bar, held, ({ replica }) => replica, ({ name }) => {
      const part = h("div", { class: `fill hue-${hueOf(name)}` });
      return { node: part, update: ({ size }) => { part.style.width = `${(100 * size) / each.budget}%`; } };
    });
    bar.setAttribute("aria-label", `${bytes(each.used)} of ${bytes(each.budget)} in use`);
    keyed(list, held, ({ replica }) => replica, ({ name }) => {
      const [label, size] = [named(h("span"), name), h("em")];
      return { node: h("span", label, size), update: (its) => put(size, bytes(its.size)) };
    });
    show(asked, resting().length);
    show(list, held.length);
  }

  const here = () => live.status.replicas.filter((each) => each.host === host && each.replica in now.replicas);
  const resting = () => here().filter(({ state }) => RESTS.has(state));

  async function ask() {
    plan.replaceChildren(h("li.faint", "Asking …"));
    const all = resting().slice(0, MOST_ASKED);
    const told = await Promise.all(all.map((each) => post("/api/explain/swap", { target: each.model }).then(
      (answer) => reason(each, answer), (error) => `${each.model}: ${error.message}`)));
    plan.replaceChildren(...told.map((text) => h("li", text)));
  }

  function reason({ model, memory }, { evict, set_name: set, cost }) {
    const free = now.budget - now.used;
    const needs = memory ? `${model} needs ${bytes(memory)}` : model;
    if (!evict.length) return `${needs}: nothing stops`;
    const because = set ? `${model} belongs to the set ${set}` : memory > free ? `${needs} and ${bytes(free)} are free` : `${model} may not run beside them`;
    const stop = `${evict.map((each) => each.split("@")[0]).join(", ")} ${evict.length === 1 ? "stops" : "stop"}`;
    return `${because}, so ${stop}${cost === null ? "" : ` at a cost of ${cost}`}`;
  }
  return { node, update };
}
