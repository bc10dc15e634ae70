// A day of a gateway with four models, always the same: what its pages answer.

const STEPS = { 1: 900, 60: 1440 };
const MODELS = { "llama3:70b": ["gpu-1", "gpu-2"], "qwen3-coder": ["gpu-3"], "gemma3:12b": ["gpu-4"], embedder: ["gpu-4-embedder"] };
const GIB = 2 ** 30;

/** A number from 0 to 1 that looks random and is always the same for one place. */
const chance = (...places) => {
  let hash = 2166136261;
  for (const letter of places.join()) hash = Math.imul(hash ^ letter.charCodeAt(0), 16777619);
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
};

/** How much people work at that time, from 0 to 1: little at night, most before noon and in the afternoon. */
function work(time) {
  const hour = (time / 3600) % 24;
  return 0.04 + 0.9 * Math.exp(-(((hour - 10.5) / 2.2) ** 2)) + 0.75 * Math.exp(-(((hour - 15.5) / 2.6) ** 2));
}

const FIGURES = {
  requests: [(load, noise) => 9 * load * (0.8 + 0.4 * noise), "1/s"],
  failed: [(load, noise, time) => (Math.abs(((time / 3600) % 24) - 14.2) < 0.15 ? 0.8 : noise > 0.995 ? 0.1 : 0), "1/s"],
  refused: [(load, noise) => (noise > 0.97 ? 0.4 * load : 0), "1/s"],
  left: [(load, noise) => 0.15 * load * noise, "1/s"],
  tokens_out: [(load, noise) => 1900 * load * (0.8 + 0.4 * noise), "1/s"],
  tokens_in: [(load, noise) => 14000 * load * (0.7 + 0.6 * noise), "1/s"],
  ttft_ms_p50: [(load, noise) => 180 + 260 * load * (0.8 + 0.4 * noise), "ms"],
  ttft_ms_p99: [(load, noise) => 900 + 2600 * load * (0.6 + 0.8 * noise), "ms"],
  itl_ms_p50: [(load, noise) => 18 + 9 * load * (0.8 + 0.4 * noise), "ms"],
  itl_ms_p99: [(load, noise) => 44 + 60 * load * (0.6 + 0.8 * noise), "ms"],
  queue: [(load, noise) => Math.round(6 * load * noise * noise), "requests"],
  cached_ratio: [(load, noise) => 0.55 + 0.3 * load * (0.8 + 0.2 * noise), "ratio"],
  kv_usage: [(load, noise) => Math.min(0.97, 0.1 + 0.8 * load * (0.85 + 0.15 * noise)), "ratio"],
  gpu_utilization: [(load, noise) => Math.min(0.99, 0.02 + load * (0.85 + 0.15 * noise)), "ratio", "gpu"],
  gpu_memory: [(load, noise, time, name) => GIB * (70 + 6 * chance(name)), "bytes", "gpu"],
  engine_memory: [(load, noise, time, name) => GIB * (20 + 50 * chance(name)), "bytes", "backend"],
  host_memory: [() => 210 * GIB, "bytes", "host"],
};
const NAMES = { gpu: ["local:0", "local:1", "local:2", "local:3"], backend: Object.values(MODELS).flat(), model: Object.keys(MODELS), host: ["local"] };

function series(url) {
  const asked = new URL(url).searchParams;
  const [value, unit, always] = FIGURES[asked.get("metric")];
  const step = Number(asked.get("step"));
  const now = Math.floor(Date.now() / 1000 / step);
  const first = Math.max(Math.floor(Number(asked.get("since")) / step), now - STEPS[step]);
  const noon = Date.now() / 1000 - 18 * 3600; // so that it is six in the evening
  const by = always ?? asked.get("by");
  const lines = by ? NAMES[by] : [""];
  const sum = by && !always ? lines.length : 1;
  return { unit, from: first * step, step, series: lines.map((name) => ({ labels: by ? { [by]: name } : {},
    values: Array.from({ length: now - first }, (_, n) => {
      const time = (first + n) * step;
      return value(work(time - noon), chance(name, first + n, asked.get("metric")), time - noon, name) / sum;
    }) })) };
}

const hoursAgo = (hours) => Date.now() / 1000 - hours * 3600;

function status() {
  const condition = { word: "ready" };
  const all = Object.entries(MODELS).flatMap(([model, backends]) => backends.map((backend) => ({ model, backend })));
  return { version: "0.1.0", strategy: "cache_aware", trace_url: "", uptime_s: 3 * 86400 + 7200, requests: 14,
    hosts: [{ host: "local", budget: 240 * GIB, used: 210 * GIB, replicas: Object.fromEntries(all.map(({ model, backend }) => [`${model}@${backend}`, GIB * (20 + 50 * chance(backend))])) }],
    gpus: NAMES.gpu.map((name, gpu) => ({ host: "local", gpu, name: "NVIDIA H200", total: 141 * GIB, used: GIB * (70 + 6 * chance(name)), utilization: 0.7, replicas: [`m@gpu-${gpu + 1}`] })),
    services: [],
    replicas: all.map(({ model, backend }) => ({ model, backend, replica: `${model}@${backend}`, host: "local", state: "ready", condition, suspect: false,
      capabilities: { context_length: 131072, tools: true }, memory: GIB * (20 + 50 * chance(backend)), slots: 16, waiting: 0 })),
    backends: all.map(({ model, backend }) => ({ name: backend, url: "", driver: "vllm", priority: 0, role: "neutral", host: "local", state: "ready", health: "healthy",
      last_error: null, draining: false, leave_alone_s: null, models: [model], pending: Math.round(7 * chance(backend, 1)), avg_latency_ms: 240, error_share: 0 })) };
}

const events = () => [
  { event: "swap_done", time: hoursAgo(9.6), target: "gemma3:12b@gpu-4", error: null },
  { event: "swap_started", time: hoursAgo(9.61), target: "gemma3:12b@gpu-4", evict: [], waiting: 2 },
  { event: "backend_health", time: hoursAgo(3.7), backend: "gpu-2", health: "healthy" },
  { event: "backend_health", time: hoursAgo(3.9), backend: "gpu-2", health: "unhealthy", error: "connection refused" },
  { event: "request_moved", time: hoursAgo(3.91), source: "gpu-2", destination: "gpu-1", gap_ms: 210, cause: "broken", id: "r1" },
  { event: "operated", time: hoursAgo(2), who: "boss", act: "POST /api/reload", outcome: "done" },
].sort((a, b) => b.time - a.time);

export async function day(page) {
  const answer = (json) => (route) => route.fulfill({ json: json(route.request().url()) });
  await page.route("**/api/status", answer(status));
  await page.route("**/api/series*", answer(series));
  await page.route("**/api/events/past*", answer(() => ({ events: events() })));
}
