// Axes with round steps.

import { svg } from "../dom.js";

const LETTER = 6.1;
const MOST_STEPS = 4;
const HEADROOM = 1.05;
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** The values of an axis from 0: steps of 1, 2 or 5 times a power of ten, or of two for bytes, with room above `most`. */
export function ticks(most, unit) {
  if (unit === "ratio") return [0, 0.5, 1];
  const least = unit === "requests" ? 1 : unit === "bytes" ? 1024 : 0;
  const end = Math.max(most > 0 ? most * HEADROOM : unit === "ms" ? 10 : 1, least * 2);
  const step = Math.max(least, unit === "bytes" ? 2 ** Math.ceil(Math.log2(end / MOST_STEPS)) : roundStep(end / MOST_STEPS));
  return Array.from({ length: Math.ceil(end / step - 1e-9) + 1 }, (_, n) => Number((n * step).toPrecision(12)));
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return Number(([1, 2, 5, 10].find((times) => times * power >= least * (1 - 1e-9)) * power).toPrecision(12));
}

/** Round times of the viewer's clock between two, at most `most`. */
export function times(begin, end, most) {
  const step = TIMES.find((each) => (end - begin) / each <= most) ?? TIMES.at(-1);
  const shift = new Date(begin * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((begin - shift) / step) * step + shift;
  return Array.from({ length: Math.max(0, Math.floor((end - first) / step) + 1) }, (_, n) => first + n * step);
}

export const gutter = (labels) => Math.max(...labels.map(({ length }) => length)) * LETTER + 8;

export const label = (x, y, text, anchor) => svg("text", { x, y, "text-anchor": anchor }, text);

/** A line from the labels to `right` for each value, at the height `y(value)`. */
export const ruled = (values, labels, right, y) => values.flatMap((value, n) => [
  svg("line", { class: "grid", x1: gutter(labels), x2: right, y1: y(value), y2: y(value) }), label(gutter(labels) - 6, y(value) + 3.5, labels[n], "end")]);
