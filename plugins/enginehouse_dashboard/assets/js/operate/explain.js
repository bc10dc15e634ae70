// Asks where a request would go, and what would stop for a model.

import { action } from "../actions.js";
import { h, head } from "../dom.js";
import { post } from "../gateway.js";
import { live } from "../live.js";
import { candidates } from "../requests/candidates.js";

export function explainers() {
  return h("div", head("What would happen"), h("div.stack", route(), swap()));
}

function route() {
  const body = h("textarea", { rows: 5, class: "mono", spellcheck: false, "aria-label": "Request" });
  const told = h("div");
  const ask = action({ label: "Explain the route", doing: "Asking", act: async () => {
    told.replaceChildren(candidates(await post("/api/explain/route", JSON.parse(body.value))));
    return "Nothing was sent to an engine";
  } });
  const sample = h("button", { onclick: () => { body.value = example(); body.focus(); } }, "Insert an example");
  body.placeholder = 'A request as a client would send it: {"model": "…", "messages": […]}';
  return h("div.sheet.stack.tight", h("h3", "Where a request would go"), body, h("div.row", ask.node, sample), told);
}

const example = () => JSON.stringify({ model: live.status?.replicas[0]?.model ?? "MODEL", messages: [{ role: "user", content: "Hello" }] }, null, 1);

function swap() {
  const target = h("input", { placeholder: "model", "aria-label": "Model to load" });
  const told = h("div");
  const ask = action({ label: "Explain the swap", doing: "Asking", act: async () => {
    const plan = await post("/api/explain/swap", { target: target.value });
    told.replaceChildren(h("p", plan.evict.length ? `${plan.evict.join(", ")} would stop` : "Nothing would stop",
      ` and ${plan.set.join(", ") || "nothing"} would run`, plan.set_name ? ` (set ${plan.set_name}` : "", plan.cost === null ? plan.set_name ? ")" : "" : `, cost ${plan.cost})`, "."));
    return "Nothing was stopped";
  } });
  return h("div.sheet.stack.tight", h("h3", "What a load would stop"), h("div.row", target, ask.node), told);
}
