// Asks for an answer and follows it.

import { call, events } from "../gateway.js";

/** Sends `body` and calls `changed(answer)` as the answer grows. Its `first` and `ended` are in ms since it was sent. */
export async function ask(body, signal, changed) {
  const began = performance.now();
  const answer = { text: "", thought: "", calls: [], tokens: 0, raw: "", first: null, ended: null, usage: null };
  const response = await call("POST", "/v1/chat/completions", body, signal);
  const header = (name) => response.headers.get(name);
  Object.assign(answer, { id: header("x-request-id"), backend: header("x-enginehouse-backend"),
    model: header("x-enginehouse-model"), reason: header("x-enginehouse-reason") });
  if (!body.stream) {
    const whole = await response.json();
    answer.raw = JSON.stringify(whole, null, 2);
    add(answer, whole.choices?.[0]?.message ?? {});
    answer.usage = whole.usage ?? null;
  } else {
    for await (const { data } of events(response)) {
      answer.raw += `${data}\n`;
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message ?? "the stream ended with an error");
      answer.usage = chunk.usage ?? answer.usage;
      const delta = chunk.choices?.[0]?.delta;
      if (!delta) continue;
      add(answer, delta);
      if (delta.content || delta.reasoning_content || delta.reasoning || delta.tool_calls) {
        answer.first ??= performance.now() - began;
        answer.tokens += 1;
      }
      answer.ended = performance.now() - began;
      changed(answer);
    }
  }
  answer.ended = performance.now() - began;
  changed(answer);
  return answer;
}

function add(answer, { content, reasoning_content, reasoning, tool_calls: calls }) {
  answer.text += content ?? "";
  answer.thought += reasoning_content ?? reasoning ?? "";
  for (const call of calls ?? []) {
    const kept = (answer.calls[call.index ?? answer.calls.length] ??= { name: "", arguments: "" });
    kept.name += call.function?.name ?? "";
    kept.arguments += call.function?.arguments ?? "";
  }
}
