"""The scenarios: more than 500 requests in all."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.replay.faults import FaultKind
from tests.simulator.served_and_replayed.scenario import LONG, TPOT_S, Begin, End, Scenario, Send, Step

KILL, REFUSE, STALL = FaultKind.KILL, FaultKind.REFUSE, FaultKind.STALL

_CALM = '[checks]\ninterval = "1h"\nfailures = {failures}\n'
_THREE = """
[backends.a]
driver = "sim"
url = "{{a}}"
{a}
[backends.b]
driver = "sim"
url = "{{b}}"
{b}
[backends.c]
driver = "sim"
url = "{{c}}"
{c}
"""


def _config(text: str, failures: int = 3, **backends: str) -> str:
    """Three backends with these settings, then ``text``. Only requests tell their health: probes are rare."""
    settings = {name: f'models = ["m", "only-{name}"]\n' + backends.get(name, "") for name in "abc"}
    return _CALM.format(failures=failures) + _THREE.format(**settings) + text


def _limits() -> list[Step]:
    """Frozen engines fill up, then their queues; then the gateway refuses. Later, all are served."""
    steps: list[Step] = []
    for number in range(3):
        steps += [Begin(STALL, engine) for engine in "abc"]
        steps += [Send(prompt=20 + number)] * 9
        steps += [Send(stream=False)] * 5
        steps += [Send()] * 2
        steps += [End(engine) for engine in ("bca", "abc")[number % 2]]
        steps += [Send(output=3)] * 2
    return steps


def _turns(rounds: int) -> list[Step]:
    """Engines refuse, die before and in the middle of answers, and come back."""
    steps: list[Step] = []
    for hurt, kind in list(zip("abcabc", (KILL, REFUSE, KILL, KILL, REFUSE, KILL), strict=True))[:rounds]:
        steps += [Send()] * 4
        steps += [Begin(kind, hurt), *[Send()] * 5, Send(stream=False), *[Send()] * 2, End(hurt)]
    steps += [Begin(KILL, "a"), Begin(REFUSE, "b"), *[Send()] * 3, Begin(KILL, "c"), *[Send()] * 2]
    return [*steps, End("a"), *[Send()] * 2, End("b"), End("c"), Send()]


def _streams() -> list[Step]:
    """Streams break once and again, are continued, and end where no engine is left or too many have broken."""
    steps: list[Step] = []
    steps += [Send(output=LONG)] * 3 + [Send(output=LONG, stream=False)] * 2
    for engine in "aba":
        steps += [Send(output=5), Begin(KILL, engine), Send(), End(engine)]
    steps += [Send(output=LONG), Begin(KILL, "a"), Begin(KILL, "b"), Begin(KILL, "c"), *[Send()] * 2]
    return [*steps, End("b"), Send(output=2), Send(stream=False), End("a"), End("c"), *[Send()] * 2]


def _waits() -> list[Step]:
    """Requests wait for frozen engines, which die, or answer at last."""
    steps: list[Step] = []
    for _ in range(2):
        asked = [Send(), Send(stream=False), Send(output=4)]
        steps += [Begin(STALL, "a"), *asked, End("a"), Send()]
        steps += [Begin(STALL, "a"), *asked, Begin(KILL, "a"), Send(), End("a"), Send()]
        steps += [Begin(STALL, "a"), *asked, Begin(STALL, "b"), Begin(KILL, "a"), *asked, Begin(KILL, "b")]
        steps += [End("b"), End("a"), Send()]
    return steps


def _hedges() -> list[Step]:
    """The first engine never answers in time; the second one does, or it is slower, or it fails."""
    steps: list[Step] = []
    for _ in range(2):
        steps += [Begin(STALL, "a"), *[Send()] * 4, Send(stream=False), Send(output=3), End("a")]
        steps += [Begin(STALL, "a"), Begin(STALL, "b"), *[Send()] * 3, End("a"), End("b")]
        steps += [Begin(STALL, "a"), Begin(STALL, "b"), *[Send()] * 2, End("b"), End("a")]
        steps += [Begin(STALL, "a"), Begin(KILL, "b"), *[Send()] * 2, End("b"), End("a")]
    return steps


def _times() -> list[Step]:
    """The first two engines are always too slow."""
    steps: list[Step] = [Begin(STALL, "a"), Begin(STALL, "b")]
    steps += [Send(), Send(stream=False), Send(output=3), Send(model="only-a"), Send(model="only-b", stream=False)] * 2
    return steps


def _keys() -> list[Step]:
    """Keys with limits, models with other names, and models in place of others."""
    steps: list[Step] = []
    for number in range(5):
        steps += [Begin(STALL, "a"), *[Send(key="few")] * 3, Send(key="any"), Send(key="few", stream=False)]
        steps += [End("a"), Send(key="few")]
        steps += [Send(key=f"seldom-{number}")] * 4
        steps += [Send(key=f"short-{number}", prompt=300)] * 3
        steps += [Send(key="scoped"), Send(key="scoped", model="only-b"), Send(key="any", model="nickname")]
        steps += [Send(key="any", model="only-b"), Send(key="any", model="nothing"), Send(key="any", prompt=9000)]
    steps += [Begin(KILL, "b"), *[Send(key="any", model="only-b")] * 5, End("b"), Send(key="any", model="only-b")]
    return steps


def _keys_config() -> str:
    keys = ['name = "admin"\nadmin = true', 'name = "any"', 'name = "few"\nmax_concurrent = 2']
    keys += [f'name = "seldom-{number}"\nrequests_per_minute = 2' for number in range(5)]
    keys += [f'name = "short-{number}"\ntokens_per_minute = 500' for number in range(5)]
    keys += ['name = "scoped"\nmodels = ["m", "nick*"]']
    tables = [f'[[auth.keys]]\n{key}\nkey = "secret-of-{key.split(chr(34))[1]}"\n' for key in keys]
    return "".join(tables) + (
        '[routing]\nstrategy = "priority_only"\n[routing.aliases]\nnickname = "m"\n'
        '[routing.fallbacks]\nonly-b = ["only-c", "m"]\n'
    )


def _prefixes() -> list[Step]:
    """Prompts that begin alike, while engines are busy or not."""
    steps: list[Step] = []
    for number in range(30):
        steps.append(Send(prompt=400, prefix=(number % 5, number % 3), output=LONG if number % 6 == 0 else 1))
        if number % 10 == 4:
            steps += [Begin(STALL, "b"), *[Send(prompt=200, prefix=(number % 5,))] * 3, End("b")]
    return steps


def _pairs() -> list[Step]:
    """Prompts that one engine reads for another one, until one of the two dies."""
    steps: list[Step] = [*[Send(prompt=100)] * 5, Send(stream=False), Send(output=LONG), Send(output=4)]
    steps += [Begin(KILL, "a"), *[Send()] * 3, End("a"), *[Send(stream=False)] * 2]
    return [*steps, Begin(KILL, "b"), *[Send()] * 3, End("b"), *[Send()] * 2]


def _pairs_config(driver: str) -> str:
    config = _config(
        '[routing]\nstrategy = "llumnix_load"\n[rescheduling]\nenabled = true\ninterval = "1h"\npolicies = []\n',
        a='role = "prefill"',
        b='role = "decode"',
        c='role = "decode"\npriority = 1',
    )
    return config.replace('driver = "sim"', f'driver = "{driver}"')


def _swaps() -> list[Step]:
    """Launched models take turns, wait for each other, and die while they are idle or busy."""
    steps: list[Step] = []
    for model in "xyx":
        steps += [Send(model=model), Send(model=model, stream=False), Send(model=model, output=3)]
    steps += [Send(model="x", output=40), *[Send(model="y")] * 2, Send(model="x"), *[Send(model="z")] * 2]
    steps += [Send(model="y"), Send(model="x"), Begin(KILL, "x"), End("x"), Send(model="x"), Send(model="x")]
    return [*steps, Send(model="x", output=LONG), Begin(KILL, "x"), End("x"), Send(model="x"), Send(model="y")]


def _made(name: str, config: str, steps: Sequence[Step], **more: float) -> Scenario:
    return Scenario(name=name, config=config, steps=steps, **more)


_LIMITS = '[routing]\nstrategy = "{}"\n[routing.weights]\npriority = 50\nload = 50\nlatency = 0\n'
_LOOKS_AT_PROMPTS = (
    '[routing]\nstrategy = "llumnix_load"\n[rescheduling]\nenabled = true\ninterval = "1h"\npolicies = []\n'
    "[plugins.llumnix_load]\ncache_aware = true\ncache_aware_min_tokens = 0\n"
)
_DEFAULT = "[plugins.cache_aware]\npriority_s = 100_000\n"
"""``cache_aware`` learns from times, which differ between the two: so priorities decide."""
_FEW = "concurrency = 3"
_FIRST = '[routing]\nstrategy = "priority_only"\n'
_HASTE = '[backends.{}.timeouts]\nfirst_byte = "300ms"'

SCENARIOS = [
    _made(
        "limits",
        _config(_LIMITS.format("smart") + "[scheduling]\nmax_queue = 1\n", a=_FEW, b=_FEW, c=f"{_FEW}\npriority = 1"),
        _limits(),
    ),
    _made("turns", _config(_LIMITS.format("round_robin"), failures=1000), _turns(6)),
    _made("turns-health", _config(_LIMITS.format("round_robin"), failures=2), _turns(3)),
    _made("random", _config(_LIMITS.format("random") + "[plugins.random]\nseed = 7\n", failures=1000), _turns(3)),
    _made("streams", _config(_FIRST, failures=1000, b="priority = 1", c="priority = 2"), _streams()),
    _made(
        "streams-gathered",
        _config(f"{_FIRST}gather = true\n", failures=1000, b="priority = 1", c="priority = 2"),
        _streams(),
    ),
    _made("waits", _config(f"{_FIRST}max_retries = 1\n", failures=1000, b="priority = 1", c="priority = 2"), _waits()),
    _made(
        "hedges",
        _config(f'{_FIRST}hedge_after = "200ms"\n', failures=1000, b="priority = 1", c="priority = 2"),
        _hedges(),
    ),
    _made(
        "times",
        _config(
            _FIRST,
            failures=1000,
            a=_HASTE.format("a"),
            b=f"priority = 1\n{_HASTE.format('b')}",
            c="priority = 2",
        ),
        _times(),
    ),
    _made(
        "keys",
        _config(_keys_config(), b="priority = 1", c="priority = 2"),
        _keys(),
        pace=0.02,
    ),
    _made("streams-default", _config(_DEFAULT, failures=1000, b="priority = 1", c="priority = 2"), _streams()),
    _made(
        "limits-default",
        _config(
            _DEFAULT + "[scheduling]\nmax_queue = 4\n", a=_FEW, b=f"{_FEW}\npriority = 1", c=f"{_FEW}\npriority = 2"
        ),
        _limits(),
    ),
    _made("prefixes", _config(_LOOKS_AT_PROMPTS), _prefixes()),
    _made("pairs", _pairs_config("sim"), _pairs()),
    _made("no-pairs", _pairs_config("openai"), _pairs()),
    _made(
        "swaps",
        "".join(f'[models.{name}]\ndriver = "sim"\nargs = ["--ttft", "0", "--tpot", "{TPOT_S}s"]\n' for name in "xyz"),
        _swaps(),
    ),
]
