"""Runs three gateways behind HAProxy, in front of two simulated engines, until Ctrl-C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Start everything, and print what runs where."""
    if shutil.which("haproxy") is None:
        raise SystemExit("haproxy is not installed: apt install haproxy")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for port in (18301, 18302):
            engine = enginehouse("sim", "serve", "--port", str(port), "--model", "llama", "--tpot", "50ms")
            processes.append(engine)
        for name, port in (("one", 8081), ("two", 8082), ("three", 8083)):
            gateway = enginehouse("serve", "--config", str(HERE / "gateway.toml"), "--port", str(port), name=name)
            processes.append(gateway)
            print(f"gateway {name}: http://127.0.0.1:{port}, process {gateway.pid}", flush=True)
        processes.append(subprocess.Popen(["haproxy", "-f", str(HERE / "haproxy.cfg")]))
        print("all of them: http://127.0.0.1:8080", flush=True)
        processes[-1].wait()
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def enginehouse(*arguments: str, name: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "ENGINEHOUSE_SERVER_NAME": name} if name else None
    return subprocess.Popen([sys.executable, "-m", "enginehouse", *arguments], env=environment)


if __name__ == "__main__":
    main()
