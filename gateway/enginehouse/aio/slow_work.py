"""Threads for work that may take long: files elsewhere, other programs, servers that do not answer.

The few threads that asyncio shares, which ``asyncio.to_thread`` uses, are for work of milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_slowly(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run ``work`` in a thread of its own, which delays neither other work nor the end of the process.

    Raises what it raises; ``RuntimeError`` in place of ``SystemExit`` and the like, which would end the event loop.
    """
    return await asyncio.get_running_loop().run_in_executor(_OWN_THREADS, partial(work, *arguments, **named))


class _OwnThreads(Executor):
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        Thread(target=_run, args=(future, partial(fn, *args, **kwargs)), daemon=True).start()
        return future


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = work()
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:
            failure = RuntimeError(f"it ended with {type(error).__name__}")
            failure.__cause__ = error
            future.set_exception(failure)
            del failure
        else:
            future.set_result(result)
    del future  # a failure refers to this frame


_OWN_THREADS = _OwnThreads()
