// Bars of limits and budgets, with what is left.

import { h, keyed } from "../dom.js";
import { meter } from "../overview/cards.js";
import { count, duration } from "../words.js";

/** `update(limits)` shows them, as `/api/limits` has them for one key. */
export function limitBars() {
  const node = h("div.limits");
  return { node, update(limits) {
    keyed(node, limits, (each) => `${each.limit} ${each.models}`, () => {
      const bar = meter();
      return { node: bar.node, update: ({ limit, models, amount, left, full_in: seconds }) => {
        const name = `${limit.replaceAll("_", " ")}${models.join() === "*" ? "" : ` of ${models.join(", ")}`}`;
        const money = limit.startsWith("budget");
        const written = (value) => (money ? value.toFixed(2) : count(Math.floor(value)));
        const back = left < amount && seconds >= 1 ? `, all of it in ${duration(seconds)}` : "";
        bar.set(Math.max(0, amount - left) / amount, name, `${written(Math.max(0, left))} of ${written(amount)} left${back}`);
      } };
    });
  } };
}
