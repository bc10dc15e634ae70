"""Interceptors: an exact cache of answers, a header that names the model, and an end of runaway loops."""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_interceptor_examples.answer_cache import AnswerCache
from enginehouse_interceptor_examples.model_header import ModelHeader
from enginehouse_interceptor_examples.stop_loops import StopLoops
from enginehouse_kit.interceptors import Interceptor


@hookimpl
def register_interceptors(register: Register[Interceptor]) -> None:
    register("answer_cache", AnswerCache)
    register("model_header", ModelHeader)
    register("stop_loops", StopLoops)
