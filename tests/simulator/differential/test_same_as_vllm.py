"""The simulated scheduler beside vLLM's own: every step of random workloads is the same, down to the block ids.

A step is: requests in order with their tokens, computed before and cached; drafts, images, preemptions; who runs and
who waits, in order; free blocks and block tables; and what each client gets, with the finish and stop reasons.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulator.differential.drive import drive
from tests.simulator.differential.our_engine import OurEngine
from tests.simulator.differential.setups import SETUPS, make_workload
from tests.simulator.differential.vllm_process import VllmProcess
from tests.simulator.differential.workload import StepRecord
from tests.support.real_engines import find_vllm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]  # importing vLLM takes long on a busy machine

FEW = range(8)
MANY = range(8, 500)


@pytest.fixture(scope="module")
def vllm() -> Iterator[VllmProcess]:
    python = find_vllm()
    if python is None:
        pytest.skip("vLLM is not installed: run `make engines ENGINES=vllm`")
    with VllmProcess(python) as process:
        yield process


@pytest.mark.parametrize("setup", SETUPS)
def test_a_few_workloads_take_the_same_steps(vllm: VllmProcess, setup: str) -> None:
    check(vllm, setup, FEW)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("setup", SETUPS)
def test_many_workloads_take_the_same_steps(vllm: VllmProcess, setup: str) -> None:
    check(vllm, setup, MANY)


def check(vllm: VllmProcess, setup: str, seeds: range) -> None:
    for seed in seeds:
        workload = make_workload(setup, seed)
        for theirs, ours in zip(vllm.play(workload), drive(workload, OurEngine(workload)), strict=True):
            assert difference(theirs, ours) == {}, f"{setup}, workload {seed}, step {theirs.step}"


def difference(theirs: StepRecord, ours: StepRecord) -> dict[str, tuple[object, object]]:
    """The fields that differ: vLLM's value and ours."""
    pairs = {name: (getattr(theirs, name), getattr(ours, name)) for name in theirs.__struct_fields__}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
