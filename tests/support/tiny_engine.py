"""An engine that loads at once and answers everything: ``python tiny_engine.py PORT [FIFO]``.

With a FIFO it starts a process of its own, which holds that open for writing until it ends.
"""

from __future__ import annotations

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/flood":
            print(("x" * 99_999 + "\n") * 20 + "end of flood", flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    print("loading", flush=True)
    if len(sys.argv) > 2:
        subprocess.Popen(["sh", "-c", f"trap '' TERM; exec 3>{sys.argv[2]}; while :; do sleep 1; done"])
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
