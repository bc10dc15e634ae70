// Ctrl-K: jumps to a view, a model, a request or a key, and loads, unloads, drains and moves.

import { h, put } from "./dom.js";
import { part, post, read } from "./gateway.js";
import { live, lookSoon } from "./live.js";
import { openDrawer } from "./requests/drawer.js";

const MOST_SHOWN = 12;
const go = (hash) => () => { location.hash = hash; };
const order = (path, body) => async () => { await post(path, body); lookSoon(); };

/** All that can be done: its `text`, what it `does`, and whether one Enter is enough (`sure`). */
function entries(views, requests, keys) {
  const { replicas = [], backends = [] } = live.access === "operator" ? live.status ?? {} : {};
  const models = new Map(replicas.map((each) => [each.model, each]));
  const managed = (name) => backends.some((each) => each.name === models.get(name).backend && !each.url);
  const jump = (kind, name, does) => ({ text: `${kind} ${name}`, does, sure: true });
  return [
    ...views.map((link) => jump("Show", link.textContent, go(link.hash.slice(1)))),
    ...[...models.keys()].flatMap((name) => [jump("Model", name, go(`overview/${part(name)}`)), jump("Chat with", name, go(`chat/${part(name)}`)),
      ...managed(name) ? [models.get(name).state === "ready"
        ? { text: `Unload ${name}`, does: order(`/api/models/${part(name)}/unload`) } : jump("Load", name, order(`/api/models/${part(name)}/load`))] : []]),
    ...backends.map(({ name, draining }) => draining ? jump("Undrain", name, order(`/api/backends/${part(name)}/undrain`))
      : { text: `Drain ${name}`, does: order(`/api/backends/${part(name)}/drain`) }),
    ...keys.map(({ name }) => jump("Key", name, go(`usage/${part(name)}`))),
    ...requests.flatMap((each) => [jump("Request", `${each.id} ${each.model ?? each.path} ${each.caller ?? ""}`, () => openDrawer({ live: each })),
      ...each.stays ? [] : replicas.filter(({ model, replica }) => replica !== each.replica && model === models.get(each.model)?.model)
        .map(({ backend }) => ({ text: `Move ${each.id} to ${backend}`, does: order(`/api/requests/${part(each.id)}/move`, { to: backend }) }))]),
  ];
}

/** `views()`: the links to all views that may be shown. Returns what opens it. */
export function palette(views) {
  const input = h("input", { role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Jump to, or do",
    placeholder: "A model, a request, a key; load, drain, move …", autocomplete: "off" });
  const list = h("ul", { role: "listbox", id: "palette-list", "aria-label": "Found" });
  const told = h("p.small.faint", { role: "status" });
  const dialog = h("dialog.palette", { "aria-label": "Jump to, or do" }, input, list, told);
  let all = [];
  let found = [];
  let at = 0;
  let asked = null;
  document.body.append(dialog);

  async function open() {
    dialog.close();
    all = entries(views(), [], []);
    input.value = "";
    put(told, "");
    dialog.showModal();
    draw();
    if (live.access !== "operator") return;
    const [{ requests }, { keys }] = await Promise.all([read("/api/requests"), read("/api/keys").catch(() => ({ keys: [] }))]);
    all = entries(views(), requests, keys);
    draw();
  }

  function draw() {
    const words = input.value.toLowerCase().split(/\s+/);
    found = all.filter(({ text }) => words.every((word) => text.toLowerCase().includes(word))).slice(0, MOST_SHOWN);
    at = Math.max(0, Math.min(at, found.length - 1));
    list.replaceChildren(...found.map((each, n) => h("li", { role: "option", id: `palette-${n}`, "aria-selected": String(n === at),
      onclick: () => { at = n; act(); } }, each.text === asked ? `${each.text}: Enter again to do it` : each.text)));
    input.setAttribute("aria-activedescendant", found.length ? `palette-${at}` : "");
    put(told, found.length ? "" : "Nothing is called so");
  }

  async function act() {
    const entry = found[at];
    if (!entry) return;
    if (!entry.sure && asked !== entry.text) { asked = entry.text; return draw(); }
    asked = null;
    put(told, `${entry.text} …`);
    try {
      const doing = entry.does();
      if (entry.sure && !doing) dialog.close();
      await doing;
      put(told, `${entry.text}: done`);
    } catch (error) {
      put(told, error.message);
    }
  }

  input.oninput = () => { at = 0; asked = null; draw(); };
  input.onkeydown = (event) => {
    if (event.key === "Enter") act();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % (found.length || 1);
    else return;
    event.preventDefault();
    if (event.key !== "Enter") draw();
  };
  dialog.onclick = ({ target }) => { if (target === dialog) dialog.close(); };
  window.onkeydown = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); open(); }
  };
  return open;
}
