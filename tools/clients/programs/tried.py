"""Prints, for each thing that a client is asked to do, ``ok`` or what went wrong."""

import os

URL = os.environ["GATEWAY"]
MODEL = os.environ["MODEL"]
HELLO = [{"role": "user", "content": "Say hello"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tried(**tries):
    for name, do in tries.items():
        try:
            print(name, "ok" if do() else "nothing came", flush=True)
        except Exception as error:  # noqa: PERF203 - runs a few times
            print(name, type(error).__name__, str(error).replace("\n", " ")[:200], flush=True)
