"""What the launcher says before Ray is asked."""

from __future__ import annotations

import pytest
from enginehouse_ray.cluster import no_room, room
from enginehouse_ray.messages import Node


def node(name: str, free: float, **labels: str) -> Node:
    return Node(name, name, name, labels, {"GPU": 8.0, "CPU": 4.0}, {"GPU": free, "CPU": 4.0})


NODES = [node("a", 8, rack="1"), node("b", 2, rack="2")]


@pytest.mark.parametrize(
    ("wanted", "labels", "count", "said"),
    [
        ({"GPU": 4.0}, {}, 1, ""),
        ({"GPU": 2.0}, {"rack": "2"}, 1, ""),
        ({"GPU": 4.0}, {"rack": "2"}, 1, "GPU 4 on a node is wanted, and the 1 nodes that have so much are full"),
        ({"GPU": 4.0}, {}, 2, "GPU 4 on each of 2 nodes is wanted, and the 2 nodes that have so much are full"),
        ({"GPU": 9.0}, {}, 1, "GPU 9 on a node is wanted, and 0 nodes of the cluster have so much"),
        ({}, {"rack": "9"}, 1, "1 nodes with the labels rack=9 are wanted, and the cluster has 0"),
    ],
)
def test_why_there_is_no_room(wanted: dict[str, float], labels: dict[str, str], count: int, said: str) -> None:
    assert room(NODES, wanted, labels, count).startswith(said)
    assert bool(room(NODES, wanted, labels, count)) == bool(said)


@pytest.mark.parametrize(
    ("wanted", "labels", "count", "said"),
    [
        ({"GPU": 8.0}, {}, 2, ""),
        ({"GPU": 9.0}, {}, 1, "GPU 9 on a node is wanted, and 0 nodes of the cluster have so much"),
        ({"GPU": 1.0}, {}, 3, "3 nodes with the labels none are wanted, and the cluster has 2"),
    ],
)
def test_why_there_is_no_room_even_without_other_engines(
    wanted: dict[str, float], labels: dict[str, str], count: int, said: str
) -> None:
    assert no_room(NODES, wanted, labels, count) == said
