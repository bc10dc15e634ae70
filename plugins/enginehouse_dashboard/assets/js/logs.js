// Logs of the gateway and of the engines that it launches, with search and follow.

import { finder, h, head, put, wantedPart } from "./dom.js";
import { call, part, pieces } from "./gateway.js";
import { live } from "./live.js";

const OWN = "proxy"; // the gateway's own log
const HISTORY = 1000;
const MOST_LINES = 5000;

export function logsView() {
  const source = h("select", { "aria-label": "Log" }, new Option("the gateway", OWN));
  const search = finder("Only lines with …");
  const follows = h("input", { type: "checkbox", checked: true });
  const shown = h("pre.log", { tabIndex: 0, "aria-label": "Log" });
  const told = h("small.faint", { role: "status" });
  const node = h("div", head("Logs", h("div.row", source, search,
    h("label.row.small", follows, " follow"), told)), shown);
  let lines = [];
  let reading = null;
  let drawing = null;

  source.onchange = () => { location.hash = `#logs/${part(source.value)}`; open(); };
  search.oninput = draw;
  follows.onchange = draw;

  async function open() {
    reading?.abort();
    const mine = (reading = new AbortController());
    lines = [];
    draw();
    try {
      const answer = await call("GET", `/api/logs/${part(source.value)}?follow=true&lines=${HISTORY}`, undefined, mine.signal);
      let rest = "";
      for await (const piece of pieces(answer)) {
        const found = (rest + piece).split("\n");
        rest = found.pop();
        lines = lines.concat(found).slice(-MOST_LINES);
        drawing ??= requestAnimationFrame(() => { drawing = null; draw(); });
      }
    } catch (error) {
      if (error.name !== "AbortError") put(told, error.message);
    }
  }

  function draw() {
    const text = search.value.toLowerCase();
    const found = text ? lines.filter((line) => line.toLowerCase().includes(text)) : lines;
    put(shown, found.join("\n") || (lines.length ? "No line matches." : "Nothing was logged yet."));
    put(told, text ? `${found.length} of ${lines.length} lines` : `${lines.length} lines`);
    if (follows.checked) shown.scrollTop = shown.scrollHeight;
  }

  function update() {
    const launched = (live.status?.backends ?? []).filter(({ url }) => !url).map(({ name }) => name);
    const names = [OWN, ...launched];
    if (names.join() === [...source.options].map(({ value }) => value).join()) return;
    const before = source.value;
    source.replaceChildren(...names.map((name) => new Option(name === OWN ? "the gateway" : name, name)));
    source.value = names.includes(before) ? before : OWN;
  }

  return { node, update, left: () => reading?.abort(), shown: () => {
    update();
    const wanted = wantedPart();
    if ([...source.options].some(({ value }) => value === wanted)) source.value = wanted;
    open();
  } };
}
