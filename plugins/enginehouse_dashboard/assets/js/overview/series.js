// Figures over time, as the gateway keeps them: only what is new is asked for.

import { readIfThere } from "../gateway.js";

export const RANGES = { "15 min": { step: 1, length: 900 }, "24 h": { step: 60, length: 1440 } };

/** The values of one metric in a range. `lines`: `{ name, values }`, the oldest first, as many as the range has steps. */
export class Series {
  constructor(metric, by, { step, length }) {
    Object.assign(this, { metric, by, step, length, unit: "", end: 0, lines: new Map() });
  }

  /** Asks for the buckets that have come. The last one may have been incomplete. */
  async fetch() {
    const since = this.end ? this.end - 2 * this.step : Date.now() / 1000 - this.step * this.length;
    const query = new URLSearchParams({ metric: this.metric, by: this.by, since: Math.floor(since), step: this.step });
    const answer = await readIfThere(`/api/series?${query}`, { unit: "", series: [] });
    this.unit = answer.unit;
    const size = Math.max(0, ...answer.series.map((each) => each.values.length));
    const newest = size ? answer.from + size * this.step : Date.now() / 1000; // nothing is known yet: the time goes on
    const end = Math.floor(newest / this.step) * this.step;
    const shift = this.end ? Math.round((end - this.end) / this.step) : this.length;
    for (const values of this.lines.values()) {
      values.splice(0, shift);
      while (values.length < this.length) values.push(null);
    }
    for (const { labels, values } of answer.series) {
      const name = Object.values(labels)[0] ?? "";
      const kept = this.lines.get(name) ?? new Array(this.length).fill(null);
      values.slice(-this.length).forEach((value, n, all) => { kept[this.length - all.length + n] = value; });
      this.lines.set(name, kept);
    }
    this.end = end;
  }

  greatest(most) {
    const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
    return [...this.lines].map(([name, values]) => ({ name, values, sum: sum(values) }))
      .sort((a, b) => b.sum - a.sum).slice(0, most);
  }
}

/**
 * The values of buckets as at most `points` points: the mean of rates, the greatest of percentiles and queues. Buckets
 * are put together by their numbers, so that a line keeps its form while time goes on.
 */
export function thinned(values, first, step, points, greatest) {
  const size = Math.ceil(values.length / points);
  const thin = [];
  for (let n = 0; n < values.length; ) {
    const until = Math.min(values.length, n + size - ((first + n) % size));
    const known = values.slice(n, until).filter((value) => value !== null);
    const value = !known.length ? null : greatest ? Math.max(...known) : known.reduce((a, b) => a + b, 0) / known.length;
    thin.push({ time: (first + (n + until) / 2) * step, value });
    n = until;
  }
  return thin;
}
