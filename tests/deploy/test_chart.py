"""The Helm chart: its values follow its schema, and what it renders is what Kubernetes takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from kubernetes_asyncio import client

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
    "imagePullSecrets": [{"name": "registry"}],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    "persistence": {"enabled": True, "size": "5Gi", "storageClass": "fast", "accessModes": ["ReadWriteOnce"]},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"a/b": "c"},
        "host": "llm.example.com",
        "tlsSecret": "cert",
    },
    "disruptionBudget": {"enabled": True, "maxUnavailable": "50%"},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "priorityClassName": "high",
    "probes": {"readiness": {"periodSeconds": 1}, "liveness": {"timeoutSeconds": 3}, "startup": {}},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "resources": {"limits": {"memory": "1Gi"}},
    "drainSeconds": 30,
    "service": {"type": "LoadBalancer", "port": 80, "annotations": {"lb": "internal"}},
    "image": {"repository": "mirror/enginehouse", "tag": "1", "pullPolicy": "Always"},
    "replicas": 3,
    "config": "[server]\n",
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
    text = (CHART / "templates/_pod.tpl").read_text("utf-8")
    names = re.findall(r"ENGINEHOUSE_SERVER_(\w+)", text)
    assert names
    assert {name.lower() for name in names} <= set(ServerSettings.__struct_fields__)


def rendered(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects by kind. ``values``: in place of the chart's."""
    helm = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if helm is None:
        pytest.skip("helm is not installed: its package has no program for this system")
    told = [part for key, value in values.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]
    subprocess.run([helm, "lint", "--strict", CHART, *told], check=True, capture_output=True)
    done = subprocess.run([helm, "template", "try", CHART, *told], check=True, capture_output=True, text=True)
    return {part["kind"]: part for part in yaml.safe_load_all(done.stdout) if part}


MODELS = {
    "ConfigMap": "V1ConfigMap",
    "Deployment": "V1Deployment",
    "StatefulSet": "V1StatefulSet",
    "Service": "V1Service",
    "Ingress": "V1Ingress",
    "PodDisruptionBudget": "V1PodDisruptionBudget",
    "HorizontalPodAutoscaler": "V2HorizontalPodAutoscaler",
    "ServiceAccount": "V1ServiceAccount",
    "Role": "V1Role",
    "RoleBinding": "V1RoleBinding",
}


def check(value: Any, kind: str) -> None:
    """Refuse fields that the objects of ``kind`` do not have, and values that are none of theirs."""
    if outer := re.fullmatch(r"(?:list\[|dict\([^,]+, )(.+)[\])]", kind):
        for each in value.values() if isinstance(value, dict) else value:
            check(each, outer[1])
    elif (model := getattr(client.models, kind, None)) is not None:
        names = {field: name for name, field in model.attribute_map.items()}
        for field, inner in value.items():
            assert field in names, f"{kind} has no field {field}"
            check(inner, model.openapi_types[names[field]])
    elif kind in ("str", "int", "bool"):
        assert type(value).__name__ == kind, f"{value!r} is no {kind}"


@pytest.mark.parametrize("values", [{}, EVERYTHING, *({name: value} for name, value in EVERYTHING.items())])
def test_the_chart_renders_what_kubernetes_takes(values: dict[str, Any]) -> None:
    found = rendered(values)
    for kind, each in found.items():
        if kind in MODELS:
            check(each, MODELS[kind])
    is_there = {
        "StatefulSet": "persistence" in values,
        "Deployment": "persistence" not in values,
        "Ingress": "ingress" in values,
        "PodDisruptionBudget": "disruptionBudget" in values,
        "HorizontalPodAutoscaler": "autoscaling" in values,
        "ServiceMonitor": "serviceMonitor" in values,
        "ScaledObject": "keda" in values,
        "Role": "discovery" in values,
    }
    assert {kind: kind in found for kind in is_there} == is_there
    assert {"ConfigMap", "Service"} <= found.keys()


def test_everything_arrives_where_it_belongs() -> None:
    found = rendered(EVERYTHING)
    gateway = found["StatefulSet"]["spec"]
    pod = gateway["template"]["spec"]
    [container] = pod["containers"]
    [claim] = gateway["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["metadata"]["name"] in {each["name"] for each in container["volumeMounts"]}
    assert "state" not in {each["name"] for each in pod["volumes"]}
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"
    assert {"name": "HTTPS_PROXY", "value": "http://proxy"} in container["env"]
    assert container["startupProbe"]["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["periodSeconds"] == 1
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    [spread] = pod["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == gateway["selector"]["matchLabels"]
    [tls] = found["Ingress"]["spec"]["tls"]
    assert tls == {"hosts": ["llm.example.com"], "secretName": "cert"}
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == "50%"
