"""Models whose replicas follow their load, as operators and autoscalers see them."""

from __future__ import annotations

from tests.support.operated_gateway import Serve

CONFIG = """
[models.m]
driver = "sim"
replicas = { min = 0, max = 2 }
[models.elsewhere]
replicas = { min = 1, max = 4 }
"""
IDLE = "no request waits, 0 are served"


def test_what_is_wanted_is_told_in_a_page_a_metric_and_the_status(serve: Serve) -> None:
    gateway = serve(CONFIG)
    m = {"model": "m", "replicas": 0, "wanted": 0, "why": IDLE}
    elsewhere = {"model": "elsewhere", "replicas": 0, "wanted": 1, "why": "1 replicas are the fewest"}
    gateway.until(lambda _: gateway.http.get("/api/scale").json()["models"] == [m, elsewhere])
    assert gateway.http.get("/api/status").json()["scaling"] == [m, elsewhere]
    assert gateway.http.get("/api/scale/elsewhere").json() == elsewhere
    assert gateway.http.get("/api/scale/nobody").status_code == 404
    page = gateway.http.get("/metrics").text
    assert 'enginehouse_wanted_replicas{model="elsewhere"} 1.0' in page
    assert 'enginehouse_wanted_replicas{model="m"} 0.0' in page
