// One chart: lines over time with marks of events, drawn as SVG.

import { h, keyed, put, svg } from "../dom.js";
import { clock, figure } from "../words.js";
import { thinned } from "./series.js";

const USUAL_WIDTH = 480;
const HEIGHT = 136;
const LEFT = 44;
const BOTTOM = 16;
const TOP = 6;
const POINTS = 150;
const GREATEST = new Set(["ms", "requests", "ratio", "bytes"]);

/** The end of the axis: a short number whose half is one too, or a power of two for bytes. */
export function axisEnd(most, unit) {
  if (unit === "ratio") return 1;
  if (!(most > 0)) return unit === "ms" ? 10 : 1;
  if (unit === "bytes") return 2 ** Math.ceil(Math.log2(most));
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 3, 4, 6, 8, 10].map((times) => times * power).find((end) => end >= most);
}

/** The path of a line, of the area below it, and of a dot for each value alone; a gap where nothing is known. */
export function paths(values, x, y) {
  let line = "";
  let area = "";
  let dots = "";
  let from = null;
  values.forEach((value, n) => {
    if (value === null) {
      if (from !== null) area += `L${x(n - 1)} ${y(0)}L${x(from)} ${y(0)}Z`;
      from = null;
      return;
    }
    const step = `${from === null ? "M" : "L"}${x(n).toFixed(1)} ${y(value).toFixed(1)}`;
    const next = values[n + 1];
    if (from === null && (next === null || next === undefined)) dots += `${step}h0.01`;
    else line += step;
    area += step;
    from ??= n;
  });
  if (from !== null) area += `L${x(values.length - 1)} ${y(0)}L${x(from)} ${y(0)}Z`;
  return { line, area, dots };
}

export function chart(title) {
  const now = h("span", { class: "now" });
  const lines = svg("g");
  const marks = svg("g");
  const grid = svg("g");
  const times = svg("g");
  const pointer = svg("line", { class: "pointer", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const picture = svg("svg", { role: "img" },
    grid, times, marks, lines, pointer);
  const legend = h("p", { class: "key" });
  const node = h("figure", { class: "sheet chart" },
    h("div", { class: "row spread" }, h("h3", {}, title), now), picture, legend);
  let drawn = null;

  function draw(shown, unit, begin, end, events) {
    const width = picture.clientWidth || USUAL_WIDTH;
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const most = Math.max(0, ...shown.flatMap(({ values }) => values.map((value) => value ?? 0)));
    const top = axisEnd(most, unit);
    const thin = shown.map(({ name, values, hue }, n) => ({ name, hue: hue ?? n, values: thinned(values, POINTS, GREATEST.has(unit)) }));
    const last = Math.max(1, ...thin.map(({ values }) => values.length - 1));
    const x = (n) => LEFT + ((width - LEFT - 2) * n) / last;
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * Math.min(value, top)) / top;
    grid.replaceChildren(...[0, 0.5, 1].flatMap((share) => [
      svg("line", { class: "grid", x1: LEFT, x2: width, y1: y(top * share), y2: y(top * share) }),
      text(LEFT - 6, y(top * share) + 3.5, share || unit !== "1/s" ? figure(top * share, unit) : "0", "end"),
    ]));
    times.replaceChildren(...[0, 1, 2, 3].map((n) =>
      text(LEFT + ((width - LEFT) * n) / 3, HEIGHT - 3, label(begin + ((end - begin) * n) / 3, end - begin), ["start", "middle", "middle", "end"][n])));
    lines.replaceChildren(...thin.flatMap(({ values, hue }, n) => {
      const { line, area, dots } = paths(values, x, y);
      const drawnLine = [svg("path", { class: `line-${hue}`, d: line }), svg("path", { class: `dot line-${hue}`, d: dots })];
      return n === 0 && thin.length <= 2 ? [svg("path", { class: `area line-${hue}`, d: area }), ...drawnLine] : drawnLine;
    }));
    marks.replaceChildren(...events.filter(({ time }) => time > begin && time < end).map(({ time, name, bad }) => {
      const place = LEFT + ((width - LEFT - 2) * (time - begin)) / (end - begin);
      return svg("line", { class: `mark${bad ? " bad" : ""}`, x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM },
        svg("title", {}, `${clock(time)} ${name}`));
    }));
    drawn = { thin, unit, begin, end, last, x };
    tell(null);
    picture.setAttribute("aria-label", `${title}: ${summary(shown, unit)}`);
  }

  /** The figures at a point of time, or the last ones. */
  function tell(n) {
    if (!drawn) return;
    const { thin, unit, begin, end, last } = drawn;
    const value = ({ values }) => (n === null ? values.findLast((each) => each !== null) : values[n]) ?? null;
    put(now, n === null ? figure(thin.length ? value(thin[0]) : null, unit) : clock(begin + ((end - begin) * n) / last));
    keyed(legend, thin.filter(({ name }) => name).map((each) => ({ ...each, unit, at: value(each) })), (each) => each.name, () => {
      const shown = h("em");
      const made = h("span", {}, h("i"), h("span", { class: "cut" }), shown);
      return { node: made, update: (each) => {
        made.setAttribute("class", `line-${each.hue}`);
        put(made.children[1], each.name);
        put(shown, figure(each.at, each.unit));
      } };
    });
    pointer.setAttribute("visibility", n === null ? "hidden" : "visible");
    if (n !== null) {
      const place = drawn.x(n);
      pointer.setAttribute("x1", place);
      pointer.setAttribute("x2", place);
    }
  }

  picture.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    const box = picture.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - 2);
    if (share >= 0) tell(Math.min(drawn.last, Math.round(share * drawn.last)));
  });
  picture.addEventListener("pointerleave", () => tell(null));
  return { node, draw };
}

/** The time of day, with seconds where the whole axis is short. */
const label = (time, span) => new Date(time * 1000).toLocaleTimeString([],
  { hour: "2-digit", minute: "2-digit", second: span < 240 ? "2-digit" : undefined, hourCycle: "h23" });

function text(x, y, content, anchor) {
  return svg("text", { x, y, "text-anchor": anchor }, content);
}

function summary(shown, unit) {
  if (!shown.length) return "nothing yet";
  return shown.map(({ name, values }) => `${name || "now"} ${figure(values.findLast((each) => each !== null), unit)}`).join(", ");
}
