// The colour of a backend, a model or a key: the same in every chart and list, and after the page is opened again.

import { h } from "./dom.js";

const STORE = "enginehouse-colours";
const HUES = 10;
const MOST_NAMES = 500;
const known = new Map(stored());

function stored() {
  try {
    return Object.entries(JSON.parse(localStorage.getItem(STORE)) ?? {}).filter(([, hue]) => hue >= 0 && hue < HUES);
  } catch {
    return []; // the browser keeps nothing for this page
  }
}

/** The number of its colour: the one by its letters, or the next free one, or the one given longest ago. */
export function hueOf(name) {
  const before = known.get(name);
  if (before !== undefined) return before;
  const given = new Array(HUES).fill(-1);
  [...known.values()].forEach((hue, number) => { given[hue] = number; });
  const first = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 9973, 7) % HUES;
  const hue = given.map((_, number) => (first + number) % HUES).sort((one, other) => given[one] - given[other])[0];
  if (known.size >= MOST_NAMES) known.delete(known.keys().next().value);
  known.set(name, hue);
  try {
    localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(known)));
  } catch { /* as above */ }
  return hue;
}

export function named(node, name) {
  const wanted = name ?? "";
  if (node.textContent !== wanted) node.replaceChildren(...wanted ? [h("i", { class: `swatch hue-${hueOf(wanted)}` }), wanted] : []);
  return node;
}
