// A crowd: the answers of a gateway with many backends and many live requests.

const MODELS = 40;

export function crowd(backends, requests) {
  const replica = (n) => ({ model: `model-${n % MODELS}`, backend: `gpu-${n}`, replica: `model-${n % MODELS}@gpu-${n}`, host: "local", state: "ready",
    condition: n % 50 ? { word: "ready" } : { word: "unreachable", why: "connection refused", since: Date.now() / 1000 - 90 },
    suspect: false, capabilities: { context_length: 32768, tools: true }, memory: null, slots: 8, waiting: 0 });
  const all = Array.from({ length: backends }, (_, n) => replica(n));
  const live = () => Array.from({ length: requests }, (_, n) => ({ id: `req-${n}`, path: "/v1/chat/completions", caller: "team", user: null,
    model: `model-${n % MODELS}`, phase: "serving", position: null, replica: all[n % backends].replica, moves: 0,
    output_tokens: Math.round(performance.now() / 20) + n, stays: null, age_ms: performance.now() + n }));
  const status = () => ({ version: "0", strategy: "cache_aware", trace_url: "", uptime_s: performance.now() / 1000, requests, hosts: [], gpus: [], replicas: all,
    backends: all.map(({ backend, model }, n) => ({ name: backend, url: "http://x", driver: "vllm", priority: 0, role: "neutral", host: "local", state: "ready",
      health: n % 50 ? "healthy" : "unhealthy", last_error: n % 50 ? null : "connection refused", last_error_at: null, draining: false, leave_alone_s: null,
      models: [model], pending: (n * 7 + Math.round(performance.now() / 500)) % 8, avg_latency_ms: 80 + (n % 30), error_share: 0 })) });
  return async (page) => {
    const answer = (json) => (route) => route.fulfill({ json: typeof json === "function" ? json() : json });
    await page.route("**/api/status", answer(status));
    await page.route("**/api/requests", answer(() => ({ requests: live() })));
    await page.route("**/api/decisions*", answer({ decisions: [] }));
    await page.route("**/api/history*", answer({ requests: [] }));
  };
}
