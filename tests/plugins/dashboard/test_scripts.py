"""Scripts of the dashboard that run without a browser: what is asked of the gateway, and when nothing is any more."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import enginehouse_dashboard

SCRIPTS = Path(enginehouse_dashboard.__file__).parent / "assets/js"
NODE = shutil.which("node") or ""
PAGE = """
class Part {
  constructor() {
    Object.assign(this, { children: [], style: {}, classList: { add() {}, toggle() {} }, className: "", value: "" });
  }
  get textContent() { return this.children.map((each) => each.textContent ?? each).join(""); }
  set textContent(text) { this.children = [text]; }
  get firstChild() { return this.children[0] ?? null; }
  get lastChild() { return this.children.at(-1) ?? null; }
  get childElementCount() { return this.children.length; }
  get options() { return this.children; }
  get isConnected() { return this.isRoot ?? this.parent?.isConnected ?? false; }
  append(...parts) {
    for (const each of parts) if (each instanceof Part) each.parent = this;
    this.children.push(...parts);
  }
  insertBefore(part) { this.append(part); }
  replaceChildren(...parts) {
    for (const each of this.children) if (each instanceof Part) each.parent = null;
    this.children = [];
    this.append(...parts);
  }
  addEventListener(name, act) { this[`on${name}`] = act; }
  setAttribute(name, value) { this[name] = value; }
  getAttribute(name) { return this[name]; }
  querySelector() { return null; }
  showModal() { this.open = true; }
  close() { this.open = false; this.onclose?.(); }
}
const root = () => Object.assign(new Part(), { isRoot: true });
globalThis.drawer = root();
globalThis.Node = Part;
const make = () => new Part();
globalThis.document = { hidden: false, createElement: make, createElementNS: make, getElementById: () => drawer };
globalThis.window = globalThis;
globalThis.location = { hash: "" };
globalThis.sessionStorage = { getItem: () => null };
globalThis.IntersectionObserver = class { observe() {} };
globalThis.Option = Part;
globalThis.asked = [];
globalThis.answers = [];
globalThis.fetch = (path, { method }) => new Promise((resolve) => {
  asked.push(`${method} ${path.split("?")[0]}`);
  answers.push((body) => resolve(new Response(JSON.stringify(body))));
});
globalThis.timers = new Set();
const wait = globalThis.setTimeout;
globalThis.settled = () => new Promise((resolve) => wait(resolve, 5));
globalThis.setTimeout = (act) => { const timer = { act }; timers.add(timer); return timer; };
globalThis.clearTimeout = (timer) => timers.delete(timer);
"""
CHARTS = """
const { charts } = await import(`${scripts}/overview/charts.js`);
const shown = charts();
shown.start();
shown.stop();
for (const answer of answers) answer({ unit: "", from: 0, series: [] });
await settled();
console.log(asked.length > 0, timers.size);
shown.start();
for (const answer of answers) answer({ unit: "", from: 0, series: [] });
await settled();
console.log(timers.size);
"""
DRAWER = """
const { openDrawer } = await import(`${scripts}/requests/drawer.js`);
const request = (id) => ({ id, model: "m", path: "/x", phase: "serving", attempts: [], waits_for: [], age_ms: 1,
  explanation: null, output_tokens: null, replica: null, user: null, stays: null });
openDrawer({ live: request("a") });
drawer.close();
openDrawer({ live: request("b") });
answers[1](request("b"));
await settled();
answers[0](request("a"));
await settled();
console.log(asked.join(), timers.size);
for (const { act } of timers) act();
console.log(asked.at(-1));
"""

pytestmark = pytest.mark.skipif(not NODE, reason="needs Node.js")


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        pytest.param(CHARTS, ["true 0", "1"], id="charts that were left ask for nothing"),
        pytest.param(
            DRAWER,
            ["GET /api/requests/a,GET /api/requests/b 1", "GET /api/requests/b"],
            id="a drawer follows its own request",
        ),
    ],
)
def test_a_script(script: str, lines: list[str]) -> None:
    whole = f'{PAGE}\nconst scripts = "{SCRIPTS.as_uri()}";\n{script}'
    ran = subprocess.run(
        [NODE, "--input-type=module", "-e", whole], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout.splitlines(), ran.returncode) == (lines, 0), ran.stderr
