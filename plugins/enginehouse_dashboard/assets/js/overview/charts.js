// All charts of the overview: what they show, for how long and by what.

import { h, show } from "../dom.js";
import { live } from "../live.js";
import { chart } from "./chart.js";
import { RANGES, Series } from "./series.js";

const PACE_MS = { 1: 3000, 60: 30000 };
const MOST_LINES = 6;
/** The name of each chart, and its metrics with their names. By model or backend, it shows the first one only. */
const CHARTS = [
  ["Requests", { requests: "all", failed: "failed" }],
  ["Tokens", { tokens_out: "out", tokens_in: "in" }],
  ["Time to first token", { ttft_ms_p50: "p50", ttft_ms_p99: "p99" }],
  ["Time between tokens", { itl_ms_p50: "p50", itl_ms_p99: "p99" }],
  ["Queue", { queue: "" }],
  ["Prompt cache hits", { cached_ratio: "" }],
  ["KV cache in use", { kv_usage: "" }],
  ["GPU memory", { gpu_memory: "" }],
];
const HUES = 6;
const SHORTEST = { 1: 60, 60: 5 }; // buckets of a chart of a gateway that has just started, by their step
const hues = new Map(); // a model or a backend has one colour in all charts
const OPTIONAL = new Set(["KV cache in use", "GPU memory"]); // shown once an engine or a driver reports them

export function charts() {
  const shown = CHARTS.map(([title, metrics]) => ({ title, metrics, ...chart(title), series: [] }));
  const by = choice("Lines", { all: "", "by model": "model", "by backend": "backend" }, begin);
  const range = choice("Time", Object.fromEntries(Object.keys(RANGES).map((name) => [name, name])), begin);
  const node = h("div", {},
    h("div", { class: "head" }, h("h2", {}, "Over time"), h("div", { class: "row" }, by.node, range.node)),
    h("div", { class: "charts" }, shown.map((each) => each.node)));
  const onScreen = new Set();
  const watcher = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) onScreen[isIntersecting ? "add" : "delete"](target);
    if (timer !== null) go();
  }, { rootMargin: "200px" });
  let timer = null;
  for (const each of shown) watcher.observe(each.node);

  function begin() {
    clearTimeout(timer);
    for (const each of shown) {
      const names = Object.keys(each.metrics);
      each.series = (by.value() ? names.slice(0, 1) : names).map((name) => new Series(name, by.value(), RANGES[range.value()]));
    }
    go();
  }

  async function go() {
    clearTimeout(timer);
    const { step } = RANGES[range.value()];
    const due = document.hidden ? [] : shown.filter(({ node: figure }) => onScreen.has(figure) || !figure.offsetParent);
    await Promise.all(due.map((each) => renew(each).catch(() => {}))); // the page tells that it is lost
    timer = setTimeout(go, PACE_MS[step]);
  }

  async function renew({ series, metrics, title, node: figure, draw }) {
    await Promise.all(series.map((each) => each.fetch()));
    const { unit, end, step, length } = series[0];
    const age = live.status ? Math.ceil((end - (Date.now() / 1000 - live.status.uptime_s)) / step) : length;
    const size = Math.min(length, Math.max(SHORTEST[step], age));
    const lines = series.flatMap((each) => each.greatest(MOST_LINES).map(({ name, values, sum }) =>
      ({ name: name || metrics[each.metric], hue: hueOf(name, each.metric), values: values.slice(-size), sum })));
    show(figure, !OPTIONAL.has(title) || lines.some(({ sum }) => sum > 0));
    draw(lines, unit, end - step * size, end, marks());
  }

  return { node, start: begin, stop: () => { clearTimeout(timer); timer = null; } };
}

/** The colour of a line: that of its model or backend, the colour of alarm for failures, else the next one. */
function hueOf(name, metric) {
  if (!name) return metric === "failed" ? "bad" : undefined;
  if (!hues.has(name)) hues.set(name, hues.size % HUES);
  return hues.get(name);
}

/** The events that explain a bend in a line. */
function marks() {
  return live.events.filter(({ event }) => event in MARKED).map((each) => ({ time: each.time, ...MARKED[each.event](each) }));
}

const MARKED = {
  swap_done: ({ target, error }) => ({ name: error ? `${target} failed to load` : `${target} loaded`, bad: Boolean(error) }),
  request_moved: ({ source, destination }) => ({ name: `a stream moved from ${source} to ${destination}` }),
  backend_health: ({ backend, health }) => ({ name: `${backend} is ${health}`, bad: health === "unhealthy" }),
  backend_draining: ({ backend, draining }) => ({ name: draining ? `${backend} drains` : `${backend} takes requests again` }),
};

/** Buttons of which one is pressed. */
function choice(name, values, changed) {
  const buttons = Object.keys(values).map((label, n) => h("button", { type: "button", "aria-pressed": String(n === 0),
    onclick: () => {
      buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.textContent === label)));
      changed();
    } }, label));
  const node = h("div", { class: "group", role: "group", "aria-label": name }, buttons);
  return { node, value: () => values[buttons.find((each) => each.getAttribute("aria-pressed") === "true").textContent] };
}
