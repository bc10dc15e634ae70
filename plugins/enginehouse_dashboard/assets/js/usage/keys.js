// The keys: those of the configuration, and those made at run time, which can be given another secret and revoked.

import { action } from "../actions.js";
import { h, put, show, table } from "../dom.js";
import { call, key, part, post, read } from "../gateway.js";
import { moment } from "../words.js";

export function keyList() {
  const name = h("input", { placeholder: "name", "aria-label": "Name of the new key" });
  const secret = h("code", { class: "cut" });
  const told = h("p", { hidden: true, role: "status" }, "Its secret, which is shown only once: ", secret);
  const rows = table(["key", "from", "models", "last used", ""], h("span", {}, h("b", {}, "No keys"), "Everyone who reaches the gateway may use it."));
  const make = action({ label: "New key", doing: "Making", done: "Made", act: async () => reveal(await post("/api/keys", { name: name.value.trim() })) });
  const node = h("div", {}, h("div", { class: "head" }, h("h2", {}, "Keys")),
    h("div", { class: "sheet stack tight" }, rows.node, h("div", { class: "row" }, name, make.node), told));

  async function renew() {
    const { keys } = await read("/api/keys").catch(() => ({ keys: [] }));
    rows.rows(keys, (each) => `${each.source} ${each.name}`, keyRow);
  }

  function reveal(made) {
    if (!key.get()) key.set(made.key); // the first key closes the gateway, also to this page
    put(secret, made.key);
    show(told, true);
    name.value = "";
    renew();
  }

  function keyRow({ name: of, source }) {
    const td = (label) => h("td", { "data-label": label });
    const cells = { from: td("from"), models: td("models"), used: td("last used") };
    const path = `/api/keys/${part(of)}`;
    const rotate = action({ label: "Rotate", doing: "Rotating", done: "Rotated", ask: "Its current secret stops working.",
      act: async () => reveal(await post(`${path}/rotate`)) });
    const revoke = action({ label: "Revoke", doing: "Revoking", done: "Revoked", ask: "It stops working at once.",
      act: async () => { await call("DELETE", path); renew(); } });
    show(rotate.node, source === "api");
    show(revoke.node, source === "api");
    const node_ = h("tr", {}, h("td", { class: "wide" }, h("b", {}, of)), Object.values(cells),
      h("td", { class: "wide" }, h("div", { class: "row" }, rotate.node, revoke.node)));
    return { node: node_, update(each) {
      put(cells.from, `${source === "api" ? "made at run time" : "configuration"}${each.admin ? ", admin" : ""}`);
      put(cells.models, (each.models ?? []).join(", "));
      put(cells.used, each.last_used ? moment(each.last_used) : "");
    } };
  }

  return { node, renew };
}
