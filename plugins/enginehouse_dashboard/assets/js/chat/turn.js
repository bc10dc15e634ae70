// One turn of a chat: what was asked, and the answer of each model.

import { named } from "../colours.js";
import { h, put, show } from "../dom.js";
import { count, duration } from "../words.js";

/** `turn`: with its `text`, and an `image` or the note that one was `pictured`. */
export function turnNode({ text, image, pictured }) {
  const answers = h("div.answers");
  const node = h("div.turn.user", h("span.who", "You"), h("div.text", text),
    image ? h("img", { src: image, alt: "the image sent" }) : pictured ? h("span.figures", "with an image, which is not kept") : null);
  return { node: h("div.stack.tight", node, answers), add: () => {
    const answer = answerNode();
    answers.append(answer.node);
    answers.classList.toggle("many", answers.childElementCount > 1);
    return answer.update;
  } };
}

function answerNode() {
  const [model, at, text, figures, why] = [h("span"), h("span"), h("div.text"), h("span.figures"), h("p.why", { role: "alert" })];
  const thought = h("div.thought");
  const thinking = h("details", { open: true, hidden: true }, h("summary", "Thinking"), thought);
  const calls = h("div.stack.tight");
  const node = h("div.turn.assistant", h("span.who", model, at), thinking, text, calls, figures, why);
  return { node, update(answer) {
    named(model, answer.model);
    put(at, answer.backend ? ` at ${answer.backend} (${answer.reason})` : "");
    put(text, answer.text);
    put(thought, answer.thought);
    show(thinking, answer.thought);
    calls.replaceChildren(...answer.calls.map(({ name, arguments: given }) => h("pre.code", `${name}(${given})`)));
    put(figures, [figuresOf(answer), answer.stopped ? "stopped" : ""].filter(Boolean).join(" · "));
    put(why, answer.error);
    show(why, answer.error);
  } };
}

/** The first token, the tokens per second after it, how many there were, and how many of the prompt were cached. */
function figuresOf({ first, ended, tokens, usage }) {
  if (!ended) return "";
  const n = usage?.completion_tokens ?? tokens;
  const rate = first !== null && ended > first && n > 1 ? `${count((n - 1) / ((ended - first) / 1000))} tokens/s` : "";
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  const sizes = usage?.prompt_tokens ? `${count(usage.prompt_tokens)} → ${count(n)} tokens` : `${count(n)} tokens`;
  return [first === null ? "" : `first token after ${duration(first / 1000)}`, rate, sizes, cached ? `${count(cached)} from the cache` : "",
    `${duration(ended / 1000)} in all`].filter(Boolean).join(" · ");
}
