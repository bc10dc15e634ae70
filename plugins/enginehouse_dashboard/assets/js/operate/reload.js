// Reads the configuration again: first what would change, then the change.

import { action } from "../actions.js";
import { h, head, show } from "../dom.js";
import { post } from "../gateway.js";
import { lookSoon } from "../live.js";

const NAMES = { added: "adds", removed: "removes", changed: "changes", relaunched: "starts again" };

export function reloader() {
  const told = h("div.stack.tight");
  const preview = action({ label: "Preview the changes", doing: "Reading", act: async () => {
    const answer = await post("/api/reload?dry_run=true");
    told.replaceChildren(...changes(answer));
    show(apply.node, told.querySelector("li"));
    return "Nothing has changed yet";
  } });
  const apply = action({ label: "Reload", doing: "Reloading", done: "Applied", ask: "The changes below take effect.", look: "main", act: async () => {
    told.replaceChildren(...changes(await post("/api/reload")));
    show(apply.node, false);
    lookSoon();
  } });
  show(apply.node, false);
  return h("div", head("Configuration"),
    h("div.sheet.stack.tight", h("div.row", preview.node, apply.node), told));
}

function changes({ file, changes: all, warnings }) {
  const lines = [];
  for (const part of ["hosts", "backends", "models"]) {
    for (const [kind, names] of Object.entries(all[part] ?? {})) for (const name of names) lines.push(`${NAMES[kind] ?? kind} ${part.slice(0, -1)} ${name}`);
  }
  for (const key of all.settings ?? []) lines.push(`changes ${key}`);
  for (const key of all.next_launch ?? []) lines.push(`changes ${key} from the next launch of an engine`);
  for (const key of all.needs_restart ?? []) lines.push(`${key} needs a restart of the gateway`);
  return [h("p.small.faint", file ?? "no file"),
    lines.length ? h("ul", lines.map((line) => h("li", line))) : h("p", "Nothing has changed."),
    ...warnings.map((warning) => h("p.busy", warning))];
}
