// The keys: those of the configuration, and those made at run time.

import { action } from "../actions.js";
import { named } from "../colours.js";
import { h, head, nothing, put, show, table, wantedPart } from "../dom.js";
import { call, key, part, post, read, readIfThere } from "../gateway.js";
import { day, moment } from "../words.js";
import { limitBars } from "./limits.js";

export function keyList() {
  const name = h("input", { placeholder: "name", "aria-label": "Name of the new key" });
  const secret = h("code.cut");
  const told = h("p", { hidden: true, role: "status" }, "Its secret, shown only once: ", secret);
  const rows = table(["key", "from", "models", "last used", "limits", ""], nothing("No keys", "Everyone who reaches the gateway may use it."));
  const make = action({ label: "New key", doing: "Making", done: "Made", act: async () => reveal(await post("/api/keys", { name: name.value.trim() })) });
  const node = h("div", head("Keys"),
    h("div.sheet.stack.tight", rows.node, h("div.row", name, make.node), told));

  let jumped = "";

  async function renew() {
    const [{ keys }, { limits }] = await Promise.all([read("/api/keys").catch(() => ({ keys: [] })), readIfThere("/api/limits", { limits: {} })]);
    const found = keys.map((each) => ({ ...each, limits: limits[each.name] ?? [] }));
    found.sort((a, b) => (b.name === wantedPart()) - (a.name === wantedPart()));
    rows.rows(found, (each) => `${each.source} ${each.name}`, keyRow);
    if (jumped !== wantedPart()) jump();
  }

  /** Shows the key that the address names, once. */
  function jump() {
    jumped = wantedPart();
    for (const row of rows.body.children) row.ariaCurrent = row.firstChild.textContent === jumped ? "true" : null;
    rows.body.querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
  }

  function reveal(made) {
    if (!key.get()) key.set(made.key); // the first key closes the gateway, also to this page
    put(secret, made.key);
    show(told, true);
    name.value = "";
    renew();
  }

  function keyRow({ name: of, source }, cells) {
    const bars = limitBars();
    cells.limits.className = "wide";
    cells.limits.append(bars.node);
    const path = `/api/keys/${part(of)}`;
    const rotate = action({ label: "Rotate", doing: "Rotating", done: "Rotated", ask: "Its current secret stops working.",
      act: async () => reveal(await post(`${path}/rotate`)) });
    const revoke = action({ label: "Revoke", doing: "Revoking", done: "Revoked", ask: "It stops working at once.",
      act: async () => { await call("DELETE", path); renew(); } });
    show(rotate.node, source === "api");
    show(revoke.node, source === "api");
    const node_ = h("tr", h("td.wide", named(h("b"), of)), Object.values(cells),
      h("td.wide", h("div.row", rotate.node, revoke.node)));
    return { node: node_, update(each) {
      put(cells.from, `${source === "api" ? "made at run time" : "configuration"}${each.admin ? ", admin" : ""}`);
      put(cells.models, (each.models ?? []).join(", "));
      put(cells["last used"], each.last_used ? (each.last_used % 86400 ? moment : day)(each.last_used) : ""); // of an older use, only the day is known
      bars.update(each.limits);
    } };
  }

  return { node, renew };
}
