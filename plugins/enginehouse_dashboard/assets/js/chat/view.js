// Try it: a chat with one model, or with several side by side.

import { copier } from "../actions.js";
import { h, head, nothing, put, show, wantedPart } from "../dom.js";
import { key, read } from "../gateway.js";
import { live } from "../live.js";
import { mover } from "../requests/drawer.js";
import { when } from "../words.js";
import { ask } from "./answer.js";
import { forget, keep, keptChats } from "./kept.js";
import { curl, python } from "./snippets.js";
import { turnNode } from "./turn.js";

const MOST_MODELS = 4;
const TITLE = 40;
const newChat = () => ({ id: Date.now(), models: [], turns: [] });

export function chatView() {
  const pickers = h("div.side");
  const more = h("button", { onclick: () => { pick(); pickers.lastChild.querySelector("select").focus(); } }, "Compare with another model");
  const chats = h("select");
  const system = h("textarea", { rows: 2, placeholder: "You are …" });
  const most = h("input", { type: "number", min: "1", placeholder: "no limit" });
  const heat = h("input", { type: "number", min: "0", max: "2", step: "0.1", placeholder: "the engine's" });
  const stream = h("input", { type: "checkbox", checked: true });
  const tools = h("textarea", { rows: 3, class: "mono", placeholder: "[{\"type\": \"function\", …}]", spellcheck: false });
  const image = h("input", { type: "file", accept: "image/*" });
  const prompt = h("textarea", { rows: 3, placeholder: "Ask something. Enter sends, Shift+Enter begins a line.", "aria-label": "Message" });
  const send = h("button", { type: "submit", class: "main" }, "Send");
  const stop = h("button", { hidden: true }, "Stop");
  const again = h("button", { onclick: () => open(newChat()) }, "New chat");
  const drop = h("button", { onclick: () => { forget(chat); open(newChat()); } }, "Forget this chat");
  const said = h("div.said", { role: "log", tabIndex: 0, "aria-label": "Conversation" });
  const empty = h("p.none", nothing("Say something to a model",
    "You see who answered and why, and how fast. Chats stay in this browser."));
  const raw = h("pre.code", { tabIndex: 0 }, "No request was sent yet.");
  const code = h("pre.code", { tabIndex: 0 });
  let names = [];
  let chat = newChat();
  let running = null;
  let current = null;
  let asked = null;
  const move = mover(() => current && live.status ? { id: current.id, replica: `${current.model}@${current.backend}` } : null);

  const form = h("form.stack.tight", prompt, h("div.row", send, stop, move, again, drop));
  const talk = h("div.sheet.talk", h("div", empty, said), form);
  const field = (name, input) => h("label", name, input);
  const kept = field("Chats", chats);
  const side = h("div.side", pickers, more, kept,
    h("details", h("summary", "Options"), h("div.side", field("System prompt", system), field("Most tokens", most),
      field("Temperature", heat), h("label.row", h("span.row", stream, " stream the answer")),
      field("Image", image), field("Tools, as JSON", tools))),
    h("details", h("summary", "As code"), h("div.stack.tight", code, h("div.row",
      copier("Copy as curl", () => asCode(curl)), copier("Copy as Python", () => asCode(python))))),
    h("details", h("summary", "Request and answer as sent"), raw));
  const node = h("div", head("Try it"), h("div.chat", talk, side));

  form.onsubmit = (event) => { event.preventDefault(); go(); };
  prompt.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); go(); }
  };
  stop.onclick = () => running?.abort();
  chats.onchange = () => open(keptChats().find(({ id }) => String(id) === chats.value) ?? newChat());
  node.addEventListener("toggle", () => asCode(curl), true);

  function pick(value) {
    const first = !pickers.childElementCount;
    const models = h("select", first ? { id: "chat-model" } : {}, names.map((each) => new Option(each.text, each.id)));
    if (value) models.value = value;
    const away = h("button", { class: "link", onclick: () => { row.remove(); show(more, true); } }, "Remove");
    const row = h("div", field(first ? "Model" : "Other model", models), first ? null : away);
    pickers.append(row);
    show(more, pickers.childElementCount < MOST_MODELS && names.length > 1);
  }
  const picked = () => [...pickers.querySelectorAll("select")].map(({ value }) => value);

  function open(wanted) {
    running?.abort();
    chat = wanted;
    said.replaceChildren();
    show(empty, !chat.turns.length);
    for (const turn of chat.turns) {
      const shown = add(turn);
      for (const answer of turn.answers) shown.add()(answer);
    }
    if (chat.turns.length) {
      system.value = chat.system ?? "";
      pickers.replaceChildren();
      chat.models.forEach(pick);
    }
    listChats();
    prompt.focus();
  }

  function listChats() {
    const all = keptChats();
    const title = ({ id, turns }) => `${turns[0].text.slice(0, TITLE)} · ${when(id / 1000)}`;
    chats.replaceChildren(new Option("a new one", ""), ...all.map((each) => new Option(title(each), each.id)));
    chats.value = all.some(({ id }) => id === chat.id) ? String(chat.id) : "";
    show(kept, all.length);
    show(drop, chats.value);
  }

  function asCode(form_) {
    const text = form_(asked ?? body(picked()[0], [{ role: "user", content: prompt.value || "Hello" }]), Boolean(key.get()));
    put(code, text);
    return text;
  }

  function body(model, messages) {
    const given = { model, messages: [...(system.value ? [{ role: "system", content: system.value }] : []), ...messages] };
    if (most.value) given.max_tokens = Number(most.value);
    if (heat.value) given.temperature = Number(heat.value);
    if (tools.value.trim()) given.tools = JSON.parse(tools.value);
    return stream.checked ? { ...given, stream: true, stream_options: { include_usage: true } } : given;
  }

  /** What the model at a place was asked and has answered. */
  const messages = (place) => chat.turns.flatMap(({ text, image: picture, answers }) => {
    const content = picture ? [{ type: "text", text }, { type: "image_url", image_url: { url: picture } }] : text;
    const answer = answers[place] ?? answers[0];
    return [{ role: "user", content }, ...(answer?.text ? [{ role: "assistant", content: answer.text }] : [])];
  });

  async function picture() {
    if (!image.files.length) return undefined;
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(image.files[0]);
    });
  }

  async function go() {
    if (running || !prompt.value.trim()) return;
    running = new AbortController();
    busy(true);
    const mine = chat;
    const turn = { text: prompt.value, image: await picture(), answers: [] };
    Object.assign(mine, { models: picked(), system: system.value });
    mine.turns.push(turn);
    const shown = add(turn);
    const requests = mine.models.map((model, place) => ({ model, messages: messages(place) }));
    prompt.value = image.value = "";
    await Promise.all(requests.map((each, place) => answer(each, turn, place, shown.add())));
    if (turn.answers.every((each) => each.error && !each.text)) mine.turns.pop();
    if (mine.turns.length) keep(mine);
    running = current = null;
    busy(false);
    listChats();
    if (chat === mine) prompt.focus();
  }

  async function answer({ model, messages: all }, turn, place, update) {
    const grow = (so_far) => {
      turn.answers[place] = so_far;
      if (place === 0) { current = so_far; move.renew(); }
      const near = said.scrollHeight - said.scrollTop - said.clientHeight < 80;
      update(so_far);
      if (near) said.scrollTop = said.scrollHeight;
    };
    grow({ model, text: "", thought: "", calls: [] });
    try {
      const request = body(model, all);
      if (place === 0) put(raw, JSON.stringify(asked = request, null, 2));
      const { raw: answered, ...rest } = await ask(request, running.signal, grow);
      if (place === 0) put(raw, `${JSON.stringify(request, null, 2)}\n\n${answered}`);
      grow(rest);
    } catch (error) {
      const why = error instanceof SyntaxError ? `Tools are not JSON: ${error.message}` : error.message;
      grow({ ...turn.answers[place], raw: undefined, ...(error.name === "AbortError" ? { stopped: true } : { error: why }) });
    }
  }

  function busy(is) {
    show(send, !is);
    show(stop, is);
    for (const each of [again, drop, kept]) show(each, !is);
    move.hidden = true;
  }

  function add(turn) {
    show(empty, false);
    const shown = turnNode(turn);
    said.append(shown.node);
    said.scrollTop = said.scrollHeight;
    return shown;
  }

  async function list() {
    const { data } = await read("/v1/models");
    const loaded = ({ status }) => status?.value === "loaded";
    const usual = (data.find(loaded) ?? data[0])?.id;
    names = data.map((each) => ({ id: each.id, text: loaded(each) ? each.id : `${each.id} (${each.status?.value ?? "?"})` }));
    const before = picked();
    const wanted = wantedPart();
    if (names.some(({ id }) => id === wanted)) before[0] = wanted;
    pickers.replaceChildren();
    for (const each of before.length ? before : [usual]) pick(names.some(({ id }) => id === each) ? each : usual);
  }

  listChats();
  return { node, shown: () => { if (!running) list().catch(() => {}); prompt.focus(); } };
}
