"""A Ray cluster of two nodes, each in a network namespace of its own: Ray does not stay on the loopback interface."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

NEAR, FAR = "10.77.0.1", "10.77.0.2"
_NEW_NETWORK = 0x40000000
_RAY = str(Path(sys.executable).with_name("ray"))
_COMMON = ["--disable-usage-stats", "--object-store-memory=80000000", "--num-cpus=2"]


def may_unshare() -> bool:
    """Whether this process may make network namespaces."""
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return tried.returncode == 0


class TwoNodes:
    """The nodes: one at ``NEAR``, where the tests run, and one at ``FAR`` with a resource ``gpu_box`` and labels."""

    address = f"{NEAR}:6379"

    def __init__(self, folder: Path) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no network namespace can be made")
        self._far = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
        while _network(self._far.pid) == _network(os.getpid()):
            time.sleep(0.01)
        self._sh("ip link set lo up; ip link add near type veth peer name far")
        self._sh(f"ip link set far netns {self._far.pid}; ip addr add {NEAR}/24 dev near; ip link set near up")
        self._sh(f"ip link set lo up; ip link set far name near; ip addr add {FAR}/24 dev near", far=True)
        self._sh("ip link set near up; ip route add default dev near", far=True)
        self._sh("ip route add default dev near")
        head = ["--head", f"--node-ip-address={NEAR}", "--port=6379", "--include-dashboard=false"]
        self._start([*head, f"--temp-dir={folder}"])
        self.start_far()

    def start_far(self) -> None:
        """Start the second node."""
        where = [f"--address={self.address}", f"--node-ip-address={FAR}"]
        has = ['--resources={"gpu_box": 1}', "--labels", "rack=r1,ray.io/availability-zone=zone-b"]
        self._start([*where, *has], far=True)

    def lose_far(self) -> None:
        """Let the second node vanish from the network, as when its machine loses power."""
        self._sh("ip link set near down")

    def find_far(self) -> None:
        """Kill what is left of the second node, and start it again."""
        for each in self._processes(self._far.pid):
            if each.pid != self._far.pid:
                each.kill()
        self._sh("ip link set near up")
        self.start_far()

    def close(self) -> None:
        """Kill everything in both namespaces but this process."""
        for each in [*self._processes(self._far.pid), *self._processes(os.getpid())]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if each.pid != os.getpid():
                    each.kill()
        self._far.send_signal(signal.SIGKILL)
        self._far.wait()

    def _start(self, arguments: list[str], *, far: bool = False) -> None:
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        prefix = ["nsenter", "-t", str(self._far.pid), "-n"] if far else []
        subprocess.run(
            [*prefix, _RAY, "start", *arguments, *_COMMON],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=180,
        )

    def _sh(self, commands: str, *, far: bool = False) -> None:
        prefix = ["nsenter", "-t", str(self._far.pid), "-n"] if far else []
        subprocess.run([*prefix, "sh", "-ec", commands], check=True)

    @staticmethod
    def _processes(pid: int) -> list[psutil.Process]:
        """The processes in the namespace of ``pid``."""
        wanted = _network(pid)
        return [each for each in psutil.process_iter() if _network(each.pid) == wanted]


def _network(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""
