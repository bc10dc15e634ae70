// What was used each day, by key or by model, as bars.

import { hueOf } from "../colours.js";
import { h, put, show, svg } from "../dom.js";
import { gutter, label, ruled, ticks } from "../overview/scale.js";
import { count, day, money } from "../words.js";

const HEIGHT = 170;
const BOTTOM = 16;
const TOP = 8;
const LABEL_EVERY = 84;
const MOST_NAMES = 8;
const WIDEST = 64;
const DAY_S = 86400;
const LEAST_DAYS = 7;
const OTHERS = "others";
const REST_HUE = 9;

/** What can be counted: its name, the value of a row, and how that is written. */
export const COUNTED = {
  tokens: [(row) => row.tokens_in + row.tokens_out, count],
  requests: [(row) => row.requests, count],
  cost: [(row) => row.cost, money],
};

export function usageChart() {
  const picture = svg("svg", { role: "img" });
  const note = h("p.note", { hidden: true });
  const legend = h("p.key");
  const node = h("figure.chart.usage", h("div.plot", picture, note), legend);

  /** `rows`: by day and by `field`, which names the bars' parts. `what`: a key of `COUNTED`. */
  function draw(rows, field, what) {
    const [value, written] = COUNTED[what];
    const sums = new Map();
    for (const row of rows) sums.set(name(row), (sums.get(name(row)) ?? 0) + value(row));
    const names = [...sums].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]).map(([each]) => each);
    const shown = new Set(names.slice(0, MOST_NAMES));
    const hue = (each) => (each === OTHERS ? REST_HUE : hueOf(each));
    const days = allDays(rows.map((row) => row.day).filter(Boolean).sort());
    const parts = new Map(days.map((each) => [each, new Map()]));
    for (const row of rows) {
      const of = parts.get(row.day);
      const its = shown.has(name(row)) ? name(row) : OTHERS;
      of?.set(its, (of.get(its) ?? 0) + value(row));
    }
    show(node, names.length);
    if (!names.length) return;
    const wide = picture.clientWidth || 900;
    const totals = days.map((each) => [...parts.get(each).values()].reduce((a, b) => a + b, 0));
    const values = ticks(Math.max(...totals), "");
    const labels = values.map((each) => (each ? written(each) : "0"));
    const left = gutter(labels);
    const step = (wide - left) / days.length;
    const width = Math.min(WIDEST, Math.max(1, step * 0.8));
    const y = (each) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * each) / values.at(-1);
    const every = Math.ceil(LABEL_EVERY / step);
    const order = [...names.filter((each) => shown.has(each)), OTHERS];
    picture.setAttribute("viewBox", `0 0 ${wide} ${HEIGHT}`);
    picture.replaceChildren(...ruled(values, labels, wide, y), ...days.flatMap((each, n) => {
      const x = left + step * n + (step - width) / 2;
      let below = 0;
      const bars = order.filter((its) => parts.get(each).get(its)).map((its) => {
        const from = below;
        below += parts.get(each).get(its);
        return svg("rect", { class: `hue-${hue(its)}`, x, width, y: y(below), height: Math.max(0.5, y(from) - y(below)) });
      });
      if ((days.length - 1 - n) % every === 0) bars.push(label(Math.min(x + width / 2, wide - 34), HEIGHT - 3, dayOf(each), "middle"));
      return bars;
    }));
    picture.setAttribute("aria-label", `${what} by ${field}: ${order.filter((each) => sums.has(each)).map((each) => `${each} ${written(sums.get(each))}`).join(", ")}`);
    legend.replaceChildren(...order.filter((each) => shown.has(each) || names.length > MOST_NAMES).map((each) => h("span",
      h("i", { class: `hue-${hue(each)}` }), h("span.cut", each),
      h("em", written(each === OTHERS ? names.slice(MOST_NAMES).reduce((sum, its) => sum + sums.get(its), 0) : sums.get(each))))));
    picture.onpointermove = (event) => {
      const box = picture.getBoundingClientRect();
      const n = Math.floor(((event.clientX - box.left) * (wide / box.width) - left) / step);
      show(note, days[n]);
      if (!days[n]) return;
      note.className = n > days.length / 2 ? "note before" : "note";
      put(note, `${dayOf(days[n])}: ${[...parts.get(days[n])].map(([its, sum]) => `${its} ${written(sum)}`).join(", ") || "nothing"}`);
    };
    picture.onpointerleave = () => show(note, false);

    function name(row) {
      return (field === "key" ? row.key || "no key" : row.model) || "none";
    }
  }
  return { node, draw };
}

const dayOf = (each) => day(Date.parse(`${each}T12:00:00`) / 1000);

/** Every day from the first one, or a week ago, until today, as `2026-01-31`. */
function allDays(known) {
  if (!known.length) return [];
  const days = [];
  const last = Math.max(Date.parse(known.at(-1)), Date.now() - (Date.now() % (DAY_S * 1000)));
  for (let at = Math.min(Date.parse(known[0]), last - (LEAST_DAYS - 1) * DAY_S * 1000); at <= last; at += DAY_S * 1000) days.push(new Date(at).toISOString().slice(0, 10));
  return days;
}
