// One chart: lines over time with marks of events, drawn as SVG. All charts of a page share one cursor.

import { h, keyed, put, show, svg } from "../dom.js";
import { clock, figure, hour } from "../words.js";
import { gutter, label, ruled, ticks, times } from "./scale.js";

const USUAL_WIDTH = 480;
const HEIGHT = 136;
const BOTTOM = 16;
const TOP = 8;
const RIGHT = 4;
const TIME_EVERY = 78;
const NEAR = 5;
const LEAST_DRAG = 8;
const RECENT_S = 15;
const MANY = 30; // marks would hide the lines

/** Where the cursor of all charts is, in seconds since the epoch, or null. */
export const cursor = { time: null, charts: new Set() };

export function pointAt(time) {
  cursor.time = time;
  for (const each of cursor.charts) each();
}

/** The path of a line, of the area below it, and of a dot for each value alone; a gap where nothing is known. */
export function paths(points, x, y) {
  let line = "";
  let area = "";
  let dots = "";
  let from = null;
  points.forEach(({ time, value }, n) => {
    if (value === null) {
      if (from !== null) area += `L${x(points[n - 1].time)} ${y(0)}L${x(from)} ${y(0)}Z`;
      from = null;
      return;
    }
    const step = `${from === null ? "M" : "L"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    if (from === null && (points[n + 1]?.value ?? null) === null) dots += `${step}h0.01`;
    else line += step;
    area += step;
    from ??= time;
  });
  if (from !== null) area += `L${x(points.at(-1).time)} ${y(0)}L${x(from)} ${y(0)}Z`;
  return { line, area, dots };
}

/** `zoomed(from, to)` is called when a part of the time was dragged over, and without times to show all again. */
export function chart(title, zoomed) {
  const now = h("span.now");
  const [lines, marks, grid, axis] = [svg("g"), svg("g"), svg("g"), svg("g")];
  const pointer = svg("line", { class: "pointer", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const dragged = svg("rect", { class: "dragged", y: TOP, height: HEIGHT - BOTTOM - TOP, visibility: "hidden" });
  const picture = svg("svg", { role: "img", tabindex: 0 }, grid, axis, marks, lines, dragged, pointer);
  const note = h("p.note", { hidden: true });
  const legend = h("p.key");
  const node = h("figure.sheet.chart",
    h("div.row.spread", h("h3", title), now), h("div.plot", picture, note), legend);
  let drawn = null;
  let from = null;

  /** `shown`: lines with their `name`, `hue` and `points`. `events`: with their `time`, `name` and whether they are `bad`. */
  function draw(shown, unit, begin, end, events) {
    const width = picture.clientWidth || USUAL_WIDTH;
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const values = ticks(Math.max(0, ...shown.flatMap(({ points }) => points.map(({ value }) => value ?? 0))), unit);
    const labels = values.map((value) => (value ? figure(value, unit, values.at(-1)) : "0"));
    const left = gutter(labels);
    const top = values.at(-1);
    const x = (time) => left + ((width - left - RIGHT) * (time - begin)) / (end - begin);
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * Math.min(value, top)) / top;
    grid.replaceChildren(...ruled(values, labels, width - RIGHT, y));
    const fits = (time) => x(time) > TIME_EVERY / 2 && x(time) < width - TIME_EVERY / 2 + RIGHT;
    axis.replaceChildren(...times(begin, end, (width - left) / TIME_EVERY).filter(fits).map((time) =>
      label(x(time), HEIGHT - 3, hour(time, end - begin), "middle")));
    lines.replaceChildren(...shown.flatMap(({ points, hue }, n) => {
      const { line, area, dots } = paths(points, x, y);
      const own = [svg("path", { class: `hue-${hue}`, d: line }), svg("path", { class: `dot hue-${hue}`, d: dots })];
      return n === 0 && shown.length <= 2 ? [svg("path", { class: `area hue-${hue}`, d: area }), ...own] : own;
    }).reverse()); // the first one lies above the others
    const inside = events.filter(({ time }) => time > begin && time < end);
    marks.replaceChildren(...[...apart(inside, x)].map(({ time, bad }) =>
      svg("line", { class: `mark${bad ? " bad" : ""}`, x1: x(time), x2: x(time), y1: TOP, y2: bad || inside.length < MANY ? HEIGHT - BOTTOM : TOP + 6 })));
    drawn = { shown, unit, begin, end, left, width, x, events: inside };
    tell();
    picture.setAttribute("aria-label", `${title}: ${summary(shown, unit)}`);
  }

  /** The figures at the cursor, or the last ones. */
  function tell() {
    if (!drawn) return;
    const { shown, unit, begin, end, x, width, events } = drawn;
    const time = cursor.time !== null && cursor.time >= begin && cursor.time <= end ? cursor.time : null;
    const at = ({ points }) => (time === null ? latest(points, unit, end) : nearest(points, time)?.value ?? null);
    put(now, time === null ? figure(shown.length ? at(shown[0]) : null, unit) : clock(time));
    keyed(legend, shown.filter(({ name }) => name).map((each) => ({ ...each, unit, at: at(each) })), (each) => each.name, legendEntry);
    pointer.setAttribute("visibility", time === null ? "hidden" : "visible");
    const near = time === null ? [] : events.filter((each) => Math.abs(x(each.time) - x(time)) <= NEAR);
    put(note, near.slice(0, 3).map(({ name }) => name).join("; ") + (near.length > 3 ? ` and ${near.length - 3} more` : ""));
    show(note, near.length);
    if (time === null) return;
    pointer.setAttribute("x1", x(time));
    pointer.setAttribute("x2", x(time));
    note.className = x(time) > width / 2 ? "note before" : "note";
  }

  function timeAt(event) {
    const box = picture.getBoundingClientRect();
    const share = (event.clientX - box.left - drawn.left) / (box.width - drawn.left - RIGHT);
    return share < 0 && from === null ? null : drawn.begin + Math.min(1, Math.max(0, share)) * (drawn.end - drawn.begin);
  }

  picture.onpointerdown = (event) => {
    if (!drawn || event.button) return;
    event.preventDefault(); // no text is selected, and a mouse needs no focus
    from = timeAt(event);
    picture.setPointerCapture(event.pointerId);
  };
  picture.onpointermove = (event) => {
    if (!drawn) return;
    pointAt(timeAt(event));
    if (from === null) return;
    const [a, b] = [drawn.x(from), drawn.x(cursor.time)].sort((one, other) => one - other);
    dragged.setAttribute("x", a);
    dragged.setAttribute("width", b - a);
    dragged.setAttribute("visibility", "visible");
  };
  picture.onpointerup = (event) => {
    const to = from === null ? null : timeAt(event);
    if (to !== null && Math.abs(drawn.x(to) - drawn.x(from)) >= LEAST_DRAG) zoomed(Math.min(from, to), Math.max(from, to));
    stopDragging();
  };
  picture.onpointercancel = stopDragging;
  picture.onpointerleave = () => pointAt(null);
  picture.ondblclick = () => zoomed();
  picture.onkeydown = (event) => {
    if (!drawn || !["ArrowLeft", "ArrowRight", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") return void (pointAt(null), zoomed());
    const step = ((event.key === "ArrowLeft" ? -1 : 1) * (drawn.end - drawn.begin)) / 60;
    pointAt(Math.min(drawn.end, Math.max(drawn.begin, (cursor.time ?? drawn.end) + step)));
  };
  picture.onblur = () => pointAt(null);

  function stopDragging() {
    from = null;
    dragged.setAttribute("visibility", "hidden");
  }

  cursor.charts.add(tell);
  return { node, draw };
}

function legendEntry() {
  const [line, name, value] = [h("i"), h("span.cut"), h("em")];
  return { node: h("span", line, name, value), update: (each) => {
    line.className = `hue-${each.hue}`;
    put(name, each.name);
    put(value, figure(each.at, each.unit));
  } };
}

/** The last value; of a rate, the mean of the last seconds. */
function latest(points, unit, end) {
  const recent = unit === "1/s" ? points.filter(({ time, value }) => value !== null && time > end - RECENT_S) : [];
  if (recent.length) return recent.reduce((sum, { value }) => sum + value, 0) / recent.length;
  return points.findLast(({ value }) => value !== null)?.value ?? null;
}

const nearest = (points, time) => points.reduce((best, each) => (best && Math.abs(best.time - time) <= Math.abs(each.time - time) ? best : each), null);

/** One event for each place, a bad one if there is any. */
const apart = (events, x) => new Map([...events].sort((a, b) => a.bad - b.bad).map((each) => [Math.round(x(each.time) / 3), each])).values();

function summary(shown, unit) {
  if (!shown.length) return "nothing yet";
  return shown.map(({ name, points }) => `${name || "now"} ${figure(latest(points, unit, Infinity), unit)}`).join(", ");
}
