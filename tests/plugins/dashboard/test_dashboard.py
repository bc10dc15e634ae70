"""The dashboard: what everyone may read, and what its scripts ask the gateway for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match

import enginehouse_dashboard
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse_kit.testing import check_routes, create
from tests.support import plain_httpx
from tests.support.bundled_services import service_pages
from tests.support.installed_plugins import installed_plugins

KEYS = {"auth": {"keys": [{"name": "boss", "key": "k-boss", "admin": True}]}}
ASSETS = Path(enginehouse_dashboard.__file__).parent / "assets"
SCRIPTS = sorted(ASSETS.glob("js/**/*.js"))
PAGE, SCRIPT, STYLE = "/dashboard", "/dashboard/js/main.js", "/dashboard/css/base.css"
CALL = re.compile(r"""["`](/(?:api|v1)/[^"`?]*)""")
VARIABLE = re.compile(r"\$\{[^}]*\}")
NODE = shutil.which("node") or ""
LACKING = """
globalThis.sessionStorage = { getItem: () => null };
const answers = { 404: '{"error": {"message": "none"}}', 403: '{"error": {"message": "no"}}' };
let status = 404;
globalThis.fetch = async () => new Response(answers[status], { status });
const { missing, readIfThere } = await import(process.argv[1]);
const { Series } = await import(process.argv[2]);
console.log(JSON.stringify(await readIfThere("/page?limit=1", { rows: [] })), [...missing].join());
await new Series("requests", "", { step: 1, length: 9 }).fetch();
status = 403;
console.log(await readIfThere("/other", 0).catch((error) => error.message), [...missing].length);
"""
VERBS = {"/api/models/x": "/load", "/api/backends/x": "/drain", "/api/batches/x": "/cancel"}


def gateway(**sections: object) -> Gateway:
    return Gateway(msgspec.convert(sections, Config), installed_plugins())


def client(of: Gateway) -> httpx.AsyncClient:
    return plain_httpx.AsyncClient(transport=httpx.ASGITransport(of.application), base_url="http://localhost")


def test_it_keeps_the_rules_of_routes() -> None:
    check_routes(lambda: create("routes", "dashboard"))


@pytest.mark.parametrize(
    ("path", "media_type"), [(PAGE, "text/html"), (SCRIPT, "text/javascript"), (STYLE, "text/css")]
)
async def test_everyone_may_read_it_and_no_other_page_may_frame_it(path: str, media_type: str) -> None:
    async with client(gateway(**KEYS)) as reader:
        answer = await reader.get(path)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, media_type)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_people_who_open_the_address_find_it(path: str) -> None:
    async with client(gateway()) as reader:
        answer = await reader.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, PAGE)


def test_the_page_is_small() -> None:
    assert sum(each.stat().st_size for each in ASSETS.rglob("*") if each.is_file()) < 150_000


async def test_the_page_takes_everything_from_this_gateway() -> None:
    async with client(gateway()) as reader:
        page = (await reader.get(PAGE)).text
        linked = [each for each in re.findall(r'(?:src|href)="([^"]*)"', page) if not each.startswith("#")]
        assert linked
        for each in linked:
            assert (await reader.get(each)).status_code == 200, each
        for script in SCRIPTS:
            path = f"{PAGE}/{script.relative_to(ASSETS)}"
            text = (await reader.get(path)).text
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text), path
            for imported in re.findall(r'from "([^"]*)"', text):
                assert (script.parent / imported).is_file(), (path, imported)


@pytest.fixture
def of_services() -> Sequence[BaseRoute]:
    return service_pages()


async def test_the_gateway_has_every_page_that_the_scripts_call(of_services: Sequence[BaseRoute]) -> None:
    application = gateway().application
    application.router.routes += of_services
    calls = {VARIABLE.sub("x", path) for script in SCRIPTS for path in CALL.findall(script.read_text())}
    assert calls > {
        "/api/batches",
        "/api/events/past",
        "/api/status",
        "/api/events",
        "/api/series",
        "/api/logs/x",
        "/api/models/x",
        "/api/requests/x/move",
    }
    for path in calls:
        assert known(application, path + VERBS.get(path, "")), path
    assert not known(application, "/api/nonsense")


def known(application: Starlette, path: str) -> bool:
    """Whether there is a page at ``path``, whatever its method."""
    scope = {"type": "http", "app": application, "method": "GET", "path": path, "headers": []}
    return any(route.matches(scope)[0] is not Match.NONE for route in application.routes)


async def test_it_can_be_disabled() -> None:
    registry = load_plugins(PluginSettings(disabled=["dashboard"])).registry
    async with client(Gateway(Config(), registry)) as reader:
        assert (await reader.get(PAGE)).status_code == 404


@pytest.mark.skipif(not NODE, reason="needs Node.js")
def test_pages_that_a_gateway_does_not_have_are_noted(tmp_path: Path) -> None:
    scripts = shutil.copytree(ASSETS / "js", tmp_path / "js")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    files = [str(scripts / name) for name in ("gateway.js", "overview/series.js")]
    command = [NODE, "--input-type=module", "-e", LACKING, *files]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert told.splitlines() == ['{"rows":[]} /page', "no 2"]


WORDS = """
const { clock, count, duration, figure, moment } = await import(process.argv[1]);
const { paths } = await import(process.argv[2]);
const { ticks } = await import(process.argv[3]);
const { hueOf } = await import(process.argv[4]);
const { thinned } = await import(process.argv[5]);
const say = (value) => console.log(JSON.stringify(value));
say([428.73431934988724, 0.0025, 0.5, 10000, 12345, 0, 1.5].map((value) => count(value)));
say([duration(2), duration(2.54), figure(10000, "1/s")]);
say([0.7, 11, 51, 1.01, 100, 0].map((most) => ticks(most, "1/s")));
say([ticks(1, "requests"), ticks(3 * 2 ** 30, "bytes").map((bytes) => bytes / 2 ** 30), ticks(0.2, "ratio")]);
say(/[AP]M/.test(moment(0)) === /[AP]M/.test(clock(0)));
const alone = paths([null, 5, null, 1, 2].map((value, time) => ({ time, value })), (time) => time, (value) => value);
say([alone.dots, alone.line]);
const names = [..."abcdefghij"];
say([new Set(names.map(hueOf)).size, hueOf("a") === hueOf("a")]);
say(hueOf("t") === hueOf("j"));
const form = (first) => thinned([0, 1, 2, 3, 0, 1, 2, 3], first, 1, 2, true).map(({ time }) => time);
say([form(8), form(9)]);
"""


STORY = """
globalThis.document = {};
const { choiceWords, costWords } = await import(process.argv[1]);
const { promptShare } = await import(process.argv[2]);
const candidate = (backend, own, cached, more) => ({ replica: `m@${backend}`, backend, parts: { own_ms: own },
  backlog_s: 0, cached_tokens: cached, evicts: [], dropped_by: null, ms_per_token: 0.4, ...more });
const requirements = { estimated_tokens: 5000 };
const words = (...candidates) => console.log(choiceWords({ candidates, chosen: "m@a", requirements }));
const slows = (own_ms, harm_ms) => ({ parts: { own_ms, harm_ms } });
words(candidate("a", 400, 4500), candidate("b", 2100, 0));
words(candidate("a", 400, 0), candidate("b", 300, 0, { backlog_s: 9, evicts: ["n@n"] }));
words(candidate("a", 400, 0, slows(400, 5)), candidate("b", 300, 0, slows(300, 2005)));
words(candidate("a", 400, 0), candidate("b", 300, 0, { dropped_by: "health" }));
words(candidate("a", undefined, null), candidate("b", undefined, null));
const losers = [["m@c", -9000], ["m@b", -2100], ["m@d", null]];
console.log(costWords({ strategy: "cache_aware", score: -400, losers }));
console.log(costWords({ strategy: "weighted", score: 80, losers: [["m@b", 55.5]] }));
console.log(costWords({ score: null, losers: [] }) === "");
const reads = { phase: "serving", output_tokens: 0, age_ms: 1100, explanation: { candidates: [candidate("a")] },
  attempts: [{ replica: "m@a", sent_ms: 100, first_byte_ms: null, prefix: { tokens: 5000, cached: 0 } }] };
console.log(promptShare(reads), promptShare({ ...reads, output_tokens: 3 }));
"""


@pytest.mark.skipif(not NODE, reason="needs Node.js")
def test_a_choice_is_explained_by_the_costs_of_both(tmp_path: Path) -> None:
    scripts = shutil.copytree(ASSETS / "js", tmp_path / "js")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    command = [
        NODE,
        "--input-type=module",
        "-e",
        STORY,
        *(str(scripts / "requests" / name) for name in ("story.js", "progress.js")),
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert told.splitlines() == [
        "The first token is expected after 400 ms at a and after 2.1 s at b, "
        "because 4500 of 5000 tokens are cached at a and none at b.",
        "The first token is expected after 400 ms at a and after 9.3 s at b, "
        "because b would have to stop n first, and b could begin 9 s later.",
        "The first token is expected after 400 ms at a and after 300 ms at b; there it would delay other requests "
        "by 2 s more.",
        "Only a can serve it now.",
        "a has the best score of 2.",
        "; its cost is 400 ms, 2.1 s at b, 9 s at c",
        "; its score is 80, 55.5 at b",
        "true",
        "0.5 null",
    ]


@pytest.mark.skipif(not NODE, reason="needs Node.js")
def test_figures_are_short_and_single_points_are_drawn(tmp_path: Path) -> None:
    scripts = shutil.copytree(ASSETS / "js", tmp_path / "js")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    files = [
        str(scripts / name)
        for name in ("words.js", "overview/chart.js", "overview/scale.js", "colours.js", "overview/series.js")
    ]
    command = [NODE, "--input-type=module", "-e", WORDS, *files]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert [json.loads(line) for line in told.splitlines()] == [
        ["429", "0.0025", "0.5", "10 k", "12.3 k", "0", "1.5"],
        ["2 s", "2.5 s", "10 k/s"],
        [[0, 0.2, 0.4, 0.6, 0.8], [0, 5, 10, 15], [0, 20, 40, 60], [0, 0.5, 1, 1.5], [0, 50, 100, 150], [0, 0.5, 1]],
        [[0, 1, 2], [0, 1, 2, 3, 4], [0, 0.5, 1]],
        True,
        ["M1.0 5.0h0.01", "M3.0 1.0L4.0 2.0"],
        [10, True],
        False,
        [[10, 14], [10.5, 14, 16.5]],
    ]
