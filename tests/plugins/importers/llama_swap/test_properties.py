from __future__ import annotations

from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginehouse.config.routing import read_alias
from tests.support.hypothesis_profiles import TIMING_CHECKS
from tests.support.imported_config import Import

names = st.sampled_from(["a", "b", "c/d", "e:f", "p/a", "", "model", "${env.X}"])
scalars = st.none() | st.booleans() | st.integers(-2, 9000) | st.floats(allow_nan=False) | names | st.dates()
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2), max_leaves=4
)
texts = st.lists(names, max_size=3)
seconds = st.integers(-1, 700)


def table(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keys, most of the time with a value of the right kind."""
    return st.fixed_dictionaries({}, optional={key: value | value | value | anything for key, value in values.items()})


parameters = st.dictionaries(names, anything, max_size=2)
filters = table(stripParams=names, setParams=parameters, setParamsByID=st.dictionaries(names, parameters, max_size=2))
timeouts = table(connect=seconds, responseHeader=seconds, idleConn=seconds)
commands = st.sampled_from(["llama-server --port ${PORT}", "vllm serve x", "./x --port 81", "x '${PORT}", "${a}", ""])
urls = st.sampled_from(["http://localhost:${PORT}", "http://127.0.0.1:81/", "http://h", "http://[", "h", "http://h:x"])
model = table(
    cmd=commands,
    cmdStop=commands,
    proxy=urls,
    ttl=seconds,
    env=st.lists(st.sampled_from(["A=1", "A", "=", "B=${PORT}"]), max_size=2),
    aliases=texts,
    useModelName=names,
    concurrencyLimit=seconds,
    filters=filters,
    macros=st.dictionaries(names, scalars, max_size=2),
    timeouts=timeouts,
    capabilities=table(**{"in": texts, "out": texts, "context": seconds, "tools": st.booleans()}),
    checkEndpoint=names,
)
groups = st.dictionaries(names, table(members=texts, swap=st.booleans(), persistent=st.booleans()), max_size=2)
expressions = st.sampled_from(["a", "a & b", "+s | b", '(a | "c/d")', "+gone", "a &"])
matrix = table(
    vars=st.dictionaries(names, names, max_size=2),
    evict_costs=st.dictionaries(names, seconds, max_size=2),
    sets=st.dictionaries(st.sampled_from(["s", "t"]), expressions, max_size=2),
)
documents = table(
    models=st.dictionaries(names, model, max_size=3),
    macros=st.dictionaries(names, scalars, max_size=2),
    groups=groups,
    matrix=matrix,
    routing=table(
        router=table(use=st.sampled_from(["group", "matrix"]), settings=table(groups=groups, matrix=matrix)),
        scheduler=table(settings=table(fifo=table(priority=st.dictionaries(names, seconds, max_size=2)))),
    ),
    hooks=table(on_startup=table(preload=texts)),
    peers=st.dictionaries(names, table(proxy=urls, models=texts, filters=filters, timeouts=timeouts), max_size=2),
    selectors=st.dictionaries(names, table(strategy=st.sampled_from(["pin", "warm"]), targets=texts), max_size=2),
    apiKeys=texts,
    globalTTL=seconds,
    startPort=seconds,
    logLevel=names,
)


@given(documents)
@settings(max_examples=100, suppress_health_check=[*TIMING_CHECKS, HealthCheck.function_scoped_fixture])
def test_whatever_the_file_says_the_result_can_be_loaded(imported: Import, document: dict[str, Any]) -> None:
    config = imported(yaml.safe_dump(document, sort_keys=False), X="value").config
    for alias in config.routing.aliases.values():
        for name in read_alias(alias).targets:
            assert name in config.models or any(name in (each.models or ()) for each in config.backends.values())
    for group in config.scheduling.groups.values():
        assert all(config.models[member].launches for member in group.members)
