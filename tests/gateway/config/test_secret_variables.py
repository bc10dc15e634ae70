"""Which environment variables hold secrets, and which of them an engine does not get."""

from __future__ import annotations

import pytest

from enginehouse.config.schema import ModelSettings
from enginehouse.config.secret_variables import secret_variables, withheld_from
from tests.support.config_files import Load

CONFIG = """
[[auth.keys]]
name = "alice"
key = "env:ALICE_KEY"
[[auth.keys]]
name = "bob"
key = "in-the-file"
[backends.remote]
url = "http://h"
api_key = "env:B_KEY"
[models.a]
command = "${env:HOME}/serve ${port} --hf-token ${env:HF_TOKEN}"
args = ["${env:ARGS_TOKEN}"]
env = { A = "x ${env:A_TOKEN} ${env:CUDA_HOME}" }
stop_command = "${env:STOP_TOKEN}"
[models.b]
command = "serve ${port}"
env = { DB = "${env:HF_TOKEN}", PLAIN = "1" }
[plugins.types]
password = "env:PLUGIN_PASSWORD"
nested = { list = ["env:NESTED_PASSWORD"] }
"""
READ = {"ALICE_KEY": "1", "B_KEY": "2", "HF_TOKEN": "3"}


def test_every_variable_that_the_configuration_reads_may_hold_a_secret(load: Load) -> None:
    config = load(CONFIG, **READ).config
    named = {"ALICE_KEY", "B_KEY", "HF_TOKEN", "ARGS_TOKEN", "A_TOKEN", "STOP_TOKEN", "PLUGIN_PASSWORD"}
    assert secret_variables(config) == named | {"NESTED_PASSWORD"}


def test_an_engine_gets_those_that_its_own_table_names(load: Load) -> None:
    models = load(CONFIG, **READ).config.models
    environ = dict.fromkeys(["ALICE_KEY", "HF_TOKEN", "A_TOKEN", "STOP_TOKEN", "PATH", "OTHER", "UNREAD"], "x")
    secrets = frozenset({"ALICE_KEY", "HF_TOKEN", "A_TOKEN", "STOP_TOKEN", "UNSET"})
    assert withheld_from(models["a"], secrets, environ) == {"ALICE_KEY"}
    assert withheld_from(models["b"], secrets, environ) == {"ALICE_KEY", "A_TOKEN", "STOP_TOKEN"}


def test_no_engine_gets_what_configures_the_gateway(load: Load) -> None:
    overrides = {"ENGINEHOUSE_AUTH_KEYS_1_KEY": "k1", "ENGINEHOUSE_BACKENDS_REMOTE_API_KEY": "env:ELSEWHERE"}
    config = load(CONFIG, ELSEWHERE="k2", **overrides, **READ).config
    environ = {**overrides, "ENGINEHOUSE_KEY": "k3", "ELSEWHERE": "k2", "ENGINE": "x"}
    withheld = withheld_from(config.models["b"], secret_variables(config), environ)
    assert withheld == environ.keys() - {"ENGINE"}


@pytest.mark.parametrize(
    ("name", "value", "withheld"),
    [
        ("HF_TOKEN", "hf_x", True),
        ("HUGGING_FACE_HUB_TOKEN", "hf_x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("AWS_SESSION", "x", True),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=x", True),
        ("OPENAI_API_KEY", "x", True),
        ("my_password", "x", True),
        ("DATABASE_URL", "postgres://ann:x@db/1", True),
        ("https_proxy", "http://ann:x@proxy:3128", False),
        ("PATH", "/bin", False),
        ("LD_LIBRARY_PATH", "/cuda/lib", False),
        ("CUDA_VISIBLE_DEVICES", "0", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("VLLM_WORKER_MULTIPROC_METHOD", "spawn", False),
        ("NCCL_SOCKET_IFNAME", "eth0", False),
        ("HF_HOME", "/models", False),
        ("PYTHONPATH", "/lib", False),
    ],
)
def test_engines_inherit_no_secret_of_others(name: str, value: str, withheld: bool) -> None:
    assert withheld_from(ModelSettings(), frozenset(), {name: value}) == ({name} if withheld else set())
    named = ModelSettings(env={"ITS_OWN": f"${{env:{name}}}"})
    assert withheld_from(named, frozenset(), {name: value}) == set()
