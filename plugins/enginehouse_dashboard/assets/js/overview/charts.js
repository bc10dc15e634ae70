// All charts of the overview.

import { choice } from "../choice.js";
import { hueOf } from "../colours.js";
import { h, head, phone, put, show } from "../dom.js";
import { live } from "../live.js";
import { clock } from "../words.js";
import { chart } from "./chart.js";
import { eventMark } from "./events.js";
import { RANGES, Series, thinned } from "./series.js";

const PACE_MS = { 1: 3000, 60: 30000 };
const MOST_LINES = 6;
const POINTS = 150;
const LEAST_BUCKETS = 5;
/** Each chart, and its metrics with their names and colours; by model or backend, only the first one. */
const CHARTS = [
  ["Requests", { requests: ["all", 0], left: ["left", 9], refused: ["refused", 4], failed: ["failed", "bad"] }],
  ["Tokens", { tokens_out: ["out", 0], tokens_in: ["in", 2] }],
  ["Time to first token", { ttft_ms_p50: ["p50", 0], ttft_ms_p99: ["p99", 1] }],
  ["Time between tokens", { itl_ms_p50: ["p50", 0], itl_ms_p99: ["p99", 1] }],
  ["Queue", { queue: ["", 0] }],
  ["Prompt cache hits", { cached_ratio: ["", 0] }],
  ["KV cache in use", { kv_usage: ["", 0] }],
  ["GPU memory", { gpu_memory: ["", 0] }],
  ["GPU use", { gpu_utilization: ["", 0] }],
  ["Memory of engines", { engine_memory: ["", 0] }],
  ["Host memory", { host_memory: ["", 0] }],
];
const SHORTEST = { 1: 60, 60: 5 }; // buckets of a chart of a gateway that has just started, by their step
const OPTIONAL = new Set(["KV cache in use", "GPU memory", "GPU use", "Memory of engines", "Host memory"]); // shown once an engine or a driver reports them
const FIRST = new Set(["Requests", "Tokens", "Time to first token"]); // on a phone
const GREATEST = new Set(["ms", "requests", "ratio", "bytes"]);

/** A GPU with its engines. */
function gpuName(name) {
  const found = live.status?.gpus.find(({ host, gpu }) => name === `${host}:${gpu}`);
  return found && [`GPU ${found.gpu}`, ...found.replicas.map((each) => each.split("@").at(-1))].join(" ");
}

export function charts() {
  const shown = CHARTS.map(([title, metrics]) => ({ title, metrics, ...chart(title, zoom), series: [] }));
  const by = choice("Lines", { all: "", "by model": "model", "by backend": "backend" }, begin);
  const range = choice("Time", Object.fromEntries(Object.keys(RANGES).map((name) => [name, name])), () => { part = null; begin(); });
  const whole = h("button", { hidden: true, onclick: () => zoom() });
  const rest = h("button", { hidden: !phone, onclick: () => { show(rest, false); go(); } }, "Show all charts");
  const node = h("div.over",
    head("Over time", h("div.row", whole, by.node, range.node)),
    h("div.charts", shown.map((each) => each.node)), rest);
  const onScreen = new Set();
  const watcher = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) onScreen[isIntersecting ? "add" : "delete"](target);
    if (isShown) go();
  }, { rootMargin: "200px" });
  let timer = null;
  let isShown = false;
  let part = null; // the times between which the charts show more
  for (const each of shown) watcher.observe(each.node);

  function begin() {
    isShown = true;
    for (const each of shown) {
      const names = Object.keys(each.metrics);
      each.series = (by.value() ? names.slice(0, 1) : names).map((name) => new Series(name, by.value(), RANGES[range.value()]));
    }
    go();
  }

  function zoom(from, to) {
    const { step } = RANGES[range.value()];
    const more = Math.max(0, LEAST_BUCKETS * step - (to - from)) / 2;
    part = from === undefined ? null : { from: from - more, to: to + more };
    for (const each of shown) if (each.series[0]?.end) drawLines(each);
  }

  async function go() {
    clearTimeout(timer);
    const { step } = RANGES[range.value()];
    const due = document.hidden ? [] : shown.filter(({ node: figure }) => onScreen.has(figure) || !figure.offsetParent);
    await Promise.all(due.map((each) => renew(each).catch(() => {}))); // the page tells that it is lost
    if (isShown) timer = setTimeout(go, PACE_MS[step]);
  }

  async function renew(each) {
    await Promise.all(each.series.map((series) => series.fetch()));
    drawLines(each);
  }

  function drawLines({ series, metrics, title, node: figure, draw }) {
    const { unit, end, step, length } = series[0];
    const age = live.status ? Math.ceil((end - (Date.now() / 1000 - live.status.uptime_s)) / step) : length;
    const size = Math.min(length, Math.max(SHORTEST[step], age));
    const first = Math.max(length - size, part ? length - Math.ceil((end - part.from) / step) : 0);
    const last = part ? Math.max(first + 1, length - Math.floor((end - part.to) / step)) : length;
    const number = Math.round(end / step) - length + first; // of the first bucket that is shown
    const lines = series.flatMap((each) => each.greatest(MOST_LINES).map(({ name, values, sum }) => {
      const [known, hue] = metrics[each.metric];
      const points = thinned(values.slice(first, last), number, step, POINTS, GREATEST.has(unit));
      return { name: gpuName(name) ?? (name || known), hue: name ? hueOf(name) : hue, points, sum };
    }));
    show(figure, (rest.hidden || FIRST.has(title)) && (!OPTIONAL.has(title) || lines.some(({ sum }) => sum > 0)));
    const [begins, ends] = [number * step, (number + last - first) * step];
    draw(lines, unit, begins, ends, live.events.map(eventMark).filter((mark) => mark));
    show(whole, part);
    if (part) put(whole, `${clock(part.from)} – ${clock(part.to)} ✕`).setAttribute("aria-label", "Show all of the time");
  }

  return { node, start: begin, stop: () => { clearTimeout(timer); isShown = false; } };
}
