"""The Helm chart. Where `helm` is installed, it renders; everywhere, its values follow its schema."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import jsonschema
import pytest
import yaml

from enginehouse.config.schema import ServerSettings
from tests.support.paths import ROOT

CHART = ROOT / "deploy/helm/enginehouse"
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
EVERYTHING = {
    "discovery": {"enabled": True},
    "autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 3, "cpu": 50},
    "serviceMonitor": {"enabled": True, "interval": "5s"},
    "secrets": {"GATEWAY_KEY": {"secret": "keys", "key": "gateway"}},
    "podAnnotations": {"a/b": "1"},
    "keda": {"prometheus": "http://p", "engines": [{"deployment": "v", "backend": "v", "requests": 8, "max": 2}]},
}


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_values_follow_the_schema(values: dict[str, Any]) -> None:
    jsonschema.validate({**VALUES, **values}, SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [{"replica": 2}, {"replicas": "two"}, {"secrets": {"1x": {"secret": "a", "key": "b"}}}, {"service": {"port": 0}}],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**VALUES, **wrong}, SCHEMA)


def test_templates_use_only_values_that_exist() -> None:
    text = "".join(file.read_text("utf-8") for file in (CHART / "templates").iterdir())
    for used in re.findall(r"\.Values\.([\w.]+)", text):
        found: Any = VALUES
        for part in used.split("."):
            assert part in found, used
            found = found[part]


def test_variables_name_keys_of_the_configuration() -> None:
    text = (CHART / "templates/deployment.yaml").read_text("utf-8")
    names = re.findall(r"ENGINEHOUSE_SERVER_(\w+)", text)
    assert names
    assert {name.lower() for name in names} <= set(ServerSettings.__struct_fields__)


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_helm_renders_the_chart(values: dict[str, Any]) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("no helm is in PATH")
    told = [part for key, value in values.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
    rendered = subprocess.run([helm, "template", "try", CHART, *told], check=True, capture_output=True, text=True)
    kinds = [part["kind"] for part in yaml.safe_load_all(rendered.stdout) if part]
    assert {"ConfigMap", "Deployment", "Service"} <= set(kinds)
    assert ("ScaledObject" in kinds) == bool(values)
