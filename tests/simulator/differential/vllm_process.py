"""vLLM's scheduler as a child process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType

import msgspec

from tests.simulator.differential.workload import StepRecord, Workload
from tests.support.paths import ROOT

_QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


class VllmProcess:
    """Plays workloads on vLLM's own scheduler. Importing vLLM takes it about ten seconds.

    After an interrupted workload, whose answer may still come, another process plays the next one.
    """

    def __init__(self, python: Path) -> None:
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None

    def play(self, workload: Workload) -> list[StepRecord]:
        """The steps that vLLM makes of a workload."""
        try:
            return self._play(self._process or self._start(), workload)
        except BaseException:
            self._end()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [self._python, "-m", "tests.simulator.differential.vllm_engine"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **_QUIET},
        )
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()  # by itself it would take seconds to end
            self._process.__exit__(None, None, None)
            self._process = None

    @staticmethod
    def _play(process: subprocess.Popen[bytes], workload: Workload) -> list[StepRecord]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(workload) + b"\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            if line.startswith(b"["):  # vLLM prints a line here and there
                return msgspec.json.decode(line, type=list[StepRecord])
        raise RuntimeError("vLLM's scheduler ended: its error is above")

    def __enter__(self) -> VllmProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
