// Try it: a chat with any model.

import { copier } from "../actions.js";
import { h, put, show } from "../dom.js";
import { key, read } from "../gateway.js";
import { live } from "../live.js";
import { mover } from "../requests/drawer.js";
import { duration } from "../words.js";
import { ask } from "./answer.js";
import { curl, python } from "./snippets.js";

export function chatView() {
  const models = h("select", { id: "chat-model" });
  const system = h("textarea", { rows: 2, placeholder: "You are …" });
  const most = h("input", { type: "number", min: "1", placeholder: "no limit" });
  const heat = h("input", { type: "number", min: "0", max: "2", step: "0.1", placeholder: "the engine's" });
  const stream = h("input", { type: "checkbox", checked: true });
  const tools = h("textarea", { rows: 3, class: "mono", placeholder: "[{\"type\": \"function\", …}]", spellcheck: false });
  const image = h("input", { type: "file", accept: "image/*" });
  const prompt = h("textarea", { rows: 3, placeholder: "Ask something. Enter sends, Shift+Enter begins a line.", "aria-label": "Message" });
  const send = h("button", { type: "submit", class: "main" }, "Send");
  const stop = h("button", { type: "button", hidden: true }, "Stop");
  const again = h("button", { type: "button" }, "Start over");
  const said = h("div", { class: "said", role: "log", tabIndex: 0, "aria-label": "Conversation" });
  const empty = h("p", { class: "none" }, h("b", {}, "Say something to a model"),
    "You see who answered and why, how soon the first token came, and how fast the others did.");
  const raw = h("pre", { class: "code", tabIndex: 0 }, "No request was sent yet.");
  const code = h("pre", { class: "code", tabIndex: 0 });
  let asked = null;
  let turns = [];
  let running = null;
  let current = null;
  const move = mover(() => current && live.status ? { id: current.id, replica: `${current.model}@${current.backend}` } : null);

  const form = h("form", { class: "stack tight" }, prompt, h("div", { class: "row" }, send, stop, move, again));
  const talk = h("div", { class: "sheet talk" }, h("div", {}, empty, said), form);
  const field = (name, input) => h("label", {}, name, input);
  const side = h("div", { class: "side" }, field("Model", models),
    h("details", {}, h("summary", {}, "Options"), h("div", { class: "side" }, field("System prompt", system), field("Most tokens", most),
      field("Temperature", heat), h("label", { class: "row" }, h("span", { class: "row" }, stream, " stream the answer")),
      field("Image", image), field("Tools, as JSON", tools))),
    h("details", {}, h("summary", {}, "As code"), h("div", { class: "stack tight" }, code, h("div", { class: "row" },
      copier("Copy as curl", () => show_(curl)), copier("Copy as Python", () => show_(python))))),
    h("details", {}, h("summary", {}, "Request and answer as sent"), raw));
  const node = h("div", {}, h("div", { class: "head" }, h("h2", {}, "Try it")), h("div", { class: "chat" }, talk, side));

  form.addEventListener("submit", (event) => { event.preventDefault(); go(); });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); go(); }
  });
  stop.addEventListener("click", () => running?.abort());
  again.addEventListener("click", () => { running?.abort(); turns = []; said.replaceChildren(); show(empty, true); prompt.focus(); });
  node.addEventListener("toggle", () => show_(curl), true);

  function show_(form_) {
    const text = form_(asked ?? body([{ role: "user", content: prompt.value || "Hello" }]), Boolean(key.get()));
    put(code, text);
    return text;
  }

  function body(messages) {
    const given = { model: models.value, messages: [...(system.value ? [{ role: "system", content: system.value }] : []), ...messages] };
    if (most.value) given.max_tokens = Number(most.value);
    if (heat.value) given.temperature = Number(heat.value);
    if (tools.value.trim()) given.tools = JSON.parse(tools.value);
    return stream.checked ? { ...given, stream: true, stream_options: { include_usage: true } } : given;
  }

  async function content() {
    if (!image.files.length) return prompt.value;
    const url = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(image.files[0]);
    });
    return [{ type: "text", text: prompt.value }, { type: "image_url", image_url: { url } }];
  }

  async function go() {
    if (running || !prompt.value.trim()) return;
    const mine = await content();
    turns.push({ role: "user", content: mine });
    say("user", "You", prompt.value, Array.isArray(mine) ? mine[1].image_url.url : "");
    const turn = say("assistant", models.value, "");
    running = new AbortController();
    busy(true);
    try {
      asked = body(turns);
      put(raw, JSON.stringify(asked, null, 2));
      prompt.value = image.value = "";
      const answer = await ask(asked, running.signal, (so_far) => { current = so_far; grow(turn, so_far); });
      turns.push({ role: "assistant", content: answer.text });
      put(raw, `${JSON.stringify(asked, null, 2)}\n\n${answer.raw}`);
    } catch (error) {
      if (error.name === "AbortError") { put(turn.figures, `${turn.figures.textContent} · stopped`); turns.push({ role: "assistant", content: turn.text.textContent }); }
      else { turns.pop(); turn.node.append(h("p", { class: "why", role: "alert" }, error instanceof SyntaxError ? `Tools are not JSON: ${error.message}` : error.message)); }
    }
    running = current = null;
    busy(false);
    prompt.focus();
  }

  function busy(is) {
    show(send, !is);
    show(stop, is);
    show(again, !is);
    move.hidden = true;
  }

  function say(role, who, text, picture = "") {
    show(empty, false);
    const parts = { name: h("span", { class: "who" }, who), thought: h("div", { class: "thought", hidden: true }),
      text: h("div", { class: "text" }, text), figures: h("span", { class: "figures" }) };
    const node_ = h("div", { class: `turn ${role}` }, Object.values(parts), picture ? h("img", { src: picture, alt: "the image sent" }) : null);
    said.append(node_);
    said.scrollTop = said.scrollHeight;
    return { ...parts, node: node_ };
  }

  function grow(turn, answer) {
    const near = said.scrollHeight - said.scrollTop - said.clientHeight < 80;
    put(turn.text, answer.text + answer.calls.map(({ name, arguments: given }) => `\n${name}(${given})`).join(""));
    put(turn.thought, answer.thought);
    show(turn.thought, answer.thought);
    put(turn.name, `${answer.model ?? models.value} at ${answer.backend ?? "?"} (${answer.reason ?? "?"})`);
    put(turn.figures, figures(answer));
    move.renew();
    if (near) said.scrollTop = said.scrollHeight;
  }

  async function list() {
    const { data } = await read("/v1/models");
    const names = data.map(({ id }) => id);
    if (names.join() !== [...models.options].map(({ value }) => value).join()) {
      const before = models.value;
      models.replaceChildren(...data.map(({ id, status }) => new Option(status?.value === "loaded" ? id : `${id} (${status?.value ?? "?"})`, id)));
      models.value = names.includes(before) ? before : (data.find(({ status }) => status?.value === "loaded") ?? data[0])?.id ?? "";
    }
    const wanted = decodeURIComponent(location.hash.split("/").slice(1).join("/"));
    if (names.includes(wanted)) models.value = wanted;
  }

  return { node, shown: () => { list().catch(() => {}); prompt.focus(); } };
}

/** The first token, the tokens per second after it, and how many there were. */
function figures({ first, ended, tokens, usage }) {
  const n = usage?.completion_tokens ?? tokens;
  const rate = first !== null && ended > first && n > 1 ? `${((n - 1) / ((ended - first) / 1000)).toFixed(1)} tokens/s` : "";
  const read_ = usage?.prompt_tokens ? `${usage.prompt_tokens} → ${n} tokens` : `${n} tokens`;
  return [first === null ? "" : `first token after ${duration(first / 1000)}`, rate, read_, `${duration((ended ?? 0) / 1000)} in all`].filter(Boolean).join(" · ");
}
