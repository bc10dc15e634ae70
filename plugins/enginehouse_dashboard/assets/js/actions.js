// Buttons that do something: they ask before it hurts, show that they work and for how long, and tell the outcome.

import { h, put } from "./dom.js";
import { duration } from "./words.js";

const TICK_MS = 100;
const OUTCOME_MS = 6000;

/**
 * A button. `act()` does it. `doing`: its text meanwhile; `ask`: a question to answer with yes first; `done`: the
 * outcome in words. The text can be changed with `label()`, which waits while it works.
 */
export function action({ label, act, doing = "Working", done = "Done", ask, look = "" }) {
  const button = h("button", { class: look }, label);
  const told = h("small", { role: "status" });
  const node = h("span.acts", button, told);
  let text = label;
  let busy = false;

  button.onclick = () => (ask ? confirm() : go());

  function confirm() {
    const yes = h("button", { class: "danger" }, `Yes, ${text.toLowerCase()}`);
    const no = h("button", "No");
    const question = h("span.acts", { role: "group", "aria-label": ask }, h("small", ask), yes, no);
    const close = (goes) => {
      question.replaceWith(button);
      button.focus();
      if (goes) go();
    };
    yes.onclick = () => close(true);
    no.onclick = () => close(false);
    question.onkeydown = ({ key }) => { if (key === "Escape") close(false); };
    button.replaceWith(question);
    yes.focus();
  }

  async function go() {
    if (busy) return;
    busy = true;
    const began = performance.now();
    const elapsed = () => duration((performance.now() - began) / 1000);
    button.setAttribute("aria-busy", "true");
    put(told, "");
    const tick = setInterval(() => put(button, `${doing} ${elapsed()}`), TICK_MS);
    try {
      const outcome = await act();
      tell(typeof outcome === "string" ? outcome : `${done} after ${elapsed()}`, "good");
    } catch (error) {
      tell(error.message, "bad");
    }
    clearInterval(tick);
    busy = false;
    button.removeAttribute("aria-busy");
    put(button, text);
  }

  function tell(outcome, tone) {
    put(told, outcome).className = tone;
    if (tone === "good") setTimeout(() => told.textContent === outcome && put(told, ""), OUTCOME_MS);
  }

  return { node, button, isBusy: () => busy,
    label(wanted) {
      text = wanted;
      if (!busy) put(button, wanted);
    } };
}

export function copier(label, text) {
  return action({ label, doing: "Copying", done: "Copied", act: async () => {
    await navigator.clipboard.writeText(text());
    return "Copied";
  } }).node;
}
