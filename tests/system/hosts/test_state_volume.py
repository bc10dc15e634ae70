"""What a gateway leaves on disk: found again whatever its port is, and not needed to serve."""

from __future__ import annotations

import re
import resource
from pathlib import Path

from enginehouse_kit.engines import SimEngine
from tests.support.operated_gateway import OperatedGateway, ServeAlone, Stage, table


def port_of(gateway: OperatedGateway) -> int:
    return int(re.findall(r":(\d+)$", gateway.process.url)[0])


def test_engines_are_found_again_on_another_port(serve_alone: ServeAlone, tmp_path: Path) -> None:
    """Each gateway of a test picks a free port, and its state belongs to ``server.name``."""
    config = '[server]\nname = "east"\n' + table("a")
    gateway = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert gateway.ask("a").status_code == 200
    engines, port = gateway.engines(), port_of(gateway)
    gateway.process.kill()

    again = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert port_of(again) != port
    assert again.running() == {"a": "ready"}
    assert again.engines() == engines
    assert again.ask("a").status_code == 200
    assert again.engines() == engines, "no second one was started"


def fill(gateway: OperatedGateway, full: bool) -> None:
    """Let no write of the gateway to any file succeed: its state, its engines' logs and its own log."""
    most = 0 if full else resource.RLIM_INFINITY
    resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def test_a_full_volume_loses_no_request(serve_alone: ServeAlone, stage: Stage, tmp_path: Path) -> None:
    with SimEngine("remote") as remote:
        backend = f'[backends.remote]\nurl = "{remote.url}"\ndriver = "sim"\nmodels = ["remote"]\n'
        two = '[scheduling.groups.all]\nmembers = ["a", "b"]\nswap = false\n'
        config = stage.table("a") + table("b") + two + backend
        stage.open()
        gateway = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
        assert gateway.ask("a").status_code == 200
        with stage.mute():
            before = gateway.asking("a")
            gateway.until_asked(1)
            fill(gateway, True)
        assert before.result().status_code == 200
        assert gateway.ask("a").status_code == 200
        assert gateway.ask("remote").status_code == 200
        refused = gateway.ask("b")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "load_failed")
        assert "cannot be written" in refused.json()["error"]["message"], "the reason is in the error"
        assert gateway.operate("/api/models/a/unload").status_code == 200
        assert gateway.engines() == {}

        fill(gateway, False)
        gateway.until(lambda _: gateway.ask("b").status_code == 200)
        assert gateway.ask("a").status_code == 200
        assert gateway.engines().keys() == {"a", "b"}
        gateway.process.kill()

        again = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
        assert again.running() == {"a": "ready", "b": "ready"}, "what was written later is found"
