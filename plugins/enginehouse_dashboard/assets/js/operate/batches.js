// Batches of all callers: how far each is, and why its lines wait.

import { action } from "../actions.js";
import { named } from "../colours.js";
import { h, head, look, nothing, put, show, table } from "../dom.js";
import { part, post, read } from "../gateway.js";
import { live, regularly } from "../live.js";
import { meter } from "../overview/cards.js";
import { count, when } from "../words.js";

const LOOK_MS = 5000;
const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);
const TONES = { completed: "good", failed: "bad", expired: "bad", cancelled: "faint" };

export function batchList() {
  const rows = table(["batch", "key", "made", "state", "lines", "waits", ""], nothing("No batches", "Clients make them with /v1/batches."));
  const node = h("div", { hidden: true }, head("Batches"), h("div.sheet", rows.node));

  async function renew() {
    const runs = live.status?.services?.some(({ name, state }) => name === "batches" && state === "running");
    show(node, runs);
    if (runs) rows.rows((await read("/api/batches?limit=100")).batches, ({ id }) => id, batchRow);
  }

  function batchRow({ id }, cells) {
    const [word, bar] = [h("span"), meter()];
    cells.state.append(word);
    cells.lines.append(bar.node);
    cells.lines.className = cells.waits.className = "wide";
    const cancel = action({ label: "Cancel", doing: "Cancelling", done: "Cancelled", ask: "Lines without an answer are not run.",
      act: async () => { await post(`/api/batches/${part(id)}/cancel`); renew(); } });
    const made = h("tr", h("td.wide.mono.cut", { title: id }, id.slice(0, 14)), Object.values(cells), h("td.wide", cancel.node));
    return { node: made, update({ caller, created_at: at, status, request_counts: lines, running, waits_for: why, errors }) {
      named(cells.key, caller);
      put(cells.made, when(at));
      put(word, status.replace("_", " "));
      look(word, `chip ${TONES[status] ?? "busy"}`);
      const done = lines.completed + lines.failed;
      bar.set(lines.total ? done / lines.total : null, `${count(done)} of ${count(lines.total)}`,
        [running ? `${running} run` : "", lines.failed ? `${count(lines.failed)} failed` : ""].filter(Boolean).join(", "), true);
      put(cells.waits, errors?.data[0]?.message ?? Object.entries(why).map(([model, reason]) => `${model}: ${reason}`).join("; "));
      show(cancel.node, !ENDED.has(status) && status !== "cancelling" || cancel.isBusy());
    } };
  }
  return { node, ...regularly(LOOK_MS, renew) };
}
