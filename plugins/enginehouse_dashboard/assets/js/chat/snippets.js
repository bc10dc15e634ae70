// The request of a chat as code.

const KEY = "$ENGINEHOUSE_KEY";

export function curl(body, keyed) {
  const key = keyed ? ` \\\n  -H "Authorization: Bearer ${KEY}"` : "";
  return `curl -N ${location.origin}/v1/chat/completions \\\n  -H "Content-Type: application/json"${key} \\\n  -d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`;
}

export function python({ stream, stream_options: _, ...body }, keyed) {
  const key = keyed ? 'os.environ["ENGINEHOUSE_KEY"]' : '"none"';
  const given = Object.entries(body).map(([name, value]) => `    ${name}=${literal(value)},`).join("\n");
  const read = stream ? "for chunk in answer:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or \"\", end=\"\", flush=True)"
    : "print(answer.choices[0].message.content)";
  return `${keyed ? "import os\n\n" : ""}from openai import OpenAI\n\nclient = OpenAI(base_url="${location.origin}/v1", api_key=${key})\nanswer = client.chat.completions.create(\n${given}\n${stream ? "    stream=True,\n" : ""})\n${read}\n`;
}

function literal(value) {
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
}
