import { h } from "./dom.js";

/** `values`: by their labels. `changed()` is called when another one was chosen. */
export function choice(name, values, changed) {
  const buttons = Object.keys(values).map((label, n) => h("button", { "aria-pressed": String(n === 0),
    onclick: () => {
      buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.textContent === label)));
      changed();
    } }, label));
  const node = h("div.group", { role: "group", "aria-label": name }, buttons);
  return { node, value: () => values[buttons.find((each) => each.getAttribute("aria-pressed") === "true").textContent] };
}
