// Calls the gateway.

const KEY = "enginehouse-key";

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (secret) => sessionStorage.setItem(KEY, secret),
};

export async function call(method, path, body, signal) {
  const headers = key.get() ? { authorization: `Bearer ${key.get()}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  throw new Refused(told?.error?.message ?? `${method} ${path}: ${answer.status}`, answer.status);
}

export const read = async (path, signal) => (await call("GET", path, undefined, signal)).json();
export const post = async (path, body) => (await call("POST", path, body)).json();

/** The pages that this gateway does not have, because the plugin `operations` is disabled. */
export const missing = new Set();

/** As `read`; `otherwise` if the gateway has no such page. */
export async function readIfThere(path, otherwise) {
  try {
    return await read(path);
  } catch (error) {
    if (error.status !== 404) throw error;
    missing.add(path.split("?")[0]);
    return otherwise;
  }
}

export const part = encodeURIComponent;

export async function* pieces(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) yield piece.value;
}

/** The events of a stream of server-sent events, as `{ event, data }`. */
export async function* events(answer) {
  let rest = "";
  for await (const piece of pieces(answer)) {
    const found = (rest + piece).split(/\r?\n\r?\n/);
    rest = found.pop();
    for (const each of found) {
      const fields = Object.fromEntries(each.split(/\r?\n/).map((line) => line.split(/: ?(.*)/s)));
      if (fields.data !== undefined) yield { event: fields.event ?? "message", data: fields.data };
    }
  }
}
