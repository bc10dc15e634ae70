"""Finds two engines for a request, by the rules of their drivers, and has one read the prompt for the other one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from enginehouse.domain.errors import InvalidRequest, Overloaded, RequestError, UpstreamError
from enginehouse.domain.replica import Candidate, Role, Route
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.relay.events.added_fields import add_field, one_token
from enginehouse.relay.events.stream_check import StreamCheck
from enginehouse.relay.events.stream_form import CHUNKED, stream_form
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.jobs.prompt_request import PromptRequest
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.rewrite import replace_model
from enginehouse.routing.router import HandOverRules

_TOKENIZER_ONLY = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")
"""The endpoints for which no engine reads a prompt."""
_LONGEST_S = 3600.0
"""The time limit of an engine that has none."""
_WRONG = (400, 413, 422)
"""The answers to a request that another engine would refuse too."""
_SHOWN = 300
"""How many bytes of an engine's refusal are shown."""
_PARAMETERS = "kv_transfer_params"
"""The field by which one engine hands a prompt over to another one, as vLLM's connectors read it."""
_KEEP = b'{"do_remote_decode":true,"do_remote_prefill":false}'


class _PromptAnswer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


def _can_hand_over(drivers: Mapping[str, DriverSupport], path: str, candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` can read a prompt for another one, or answer what another one has read.

    ``drivers``: of every backend, by its name. ``path``: the endpoint of the request.
    """
    driver = drivers[candidate.backend]
    if path not in CHUNKED or driver.hand_over is None:
        return False
    return driver.bootstrap is None or never_alone(driver, candidate)


def _can_pair(drivers: Mapping[str, DriverSupport], prefill: Candidate, decode: Candidate) -> bool:
    """Whether ``decode`` can answer what ``prefill`` has read; each of them can hand over."""
    bootstraps = drivers[prefill.backend].bootstrap is not None
    if bootstraps is not (drivers[decode.backend].bootstrap is not None):
        return False
    return not bootstraps or (prefill.role is Role.PREFILL and decode.role is Role.DECODE)


def hand_over_rules(drivers: Mapping[str, DriverSupport], path: str) -> HandOverRules:
    """The rules for requests to ``path``."""

    def serves_alone(candidate: Candidate) -> bool:
        return path in _TOKENIZER_ONLY or not never_alone(drivers[candidate.backend], candidate)

    handing_over, pairing = partial(_can_hand_over, drivers, path), partial(_can_pair, drivers)
    return HandOverRules(handing_over, serves_alone, pairing, pairs=path in CHUNKED)


def never_alone(driver: DriverSupport, candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` serves only requests that are handed over."""
    return driver.bootstrap is not None and candidate.role is not Role.NEUTRAL


# --- the way of a request


def pair_route(job: Job, find: Callable[[tuple[str, ...]], Route], failed: tuple[str, ...]) -> Route:
    """The route of ``find`` for ``job``, with two engines where the strategy says so, as ``choose_pair`` has it."""
    context, requirements = job.context, job.requirements
    assert requirements is not None
    rules = hand_over_rules(context.drivers, job.path)
    return context.router.choose_pair(requirements, context.fleet.snapshot, find, rules, failed)


async def prepare_pair(
    job: Job, prefill: Candidate, decode: Candidate, path: str, body: bytes
) -> tuple[bytes, PromptRequest | None]:
    """Have ``prefill`` read the prompt of a request to ``path``, which ``decode`` answers.

    Returns the body for the engine that answers, and the request at the other one if both are asked at the same time.
    With ``kv_transfer_params`` they are asked one after the other. If the first one cannot be asked, the other one
    reads the prompt itself: the client notices nothing. Raises ``RequestError`` if engines that bootstrap cannot be
    asked.
    """
    drivers = job.context.drivers
    either = drivers.get(prefill.backend) or drivers.get(decode.backend)  # a reload may have removed one of them
    if either is not None and either.bootstrap is not None:
        return await _bootstrap(job, prefill, path, body)
    parameters = await _read_prompt(job, prefill, path, body)
    return (body if parameters is None else add_field(body, _PARAMETERS, bytes(parameters))), None


# --- one after the other


async def _read_prompt(job: Job, prefill: Candidate, path: str, body: bytes) -> msgspec.Raw | None:
    """Have ``prefill`` read the prompt; returns the parameters for the other engine, if it gives any."""
    upstream = job.context.upstreams.get(prefill.backend)
    if upstream is None:  # a reload has just removed it
        return None
    slot = PromptSlot(job, prefill)
    try:
        await slot.granted_or_not
        response = await _ask(job, prefill, upstream, path, add_field(one_token(body), _PARAMETERS, _KEEP))
    except RequestError:
        return None
    finally:
        slot.release()
        del slot  # a refusal refers to this frame, and the slot to the refusal
    return _handed_over(response.body) if response.status == 200 else None


def _handed_over(answer: bytes) -> msgspec.Raw | None:
    """The parameters in the ``answer`` of the engine that has read the prompt; ``None`` without any."""
    try:
        parameters = msgspec.json.decode(answer, type=_PromptAnswer).kv_transfer_params
    except (ValueError, RecursionError):
        return None
    return None if bytes(parameters) == b"null" else parameters.copy()


async def _ask(job: Job, prefill: Candidate, upstream: Upstream, path: str, body: bytes) -> EngineResponse:
    fleet = job.context.fleet
    began = job.context.clock.now()
    body = replace_model(body, prefill.name_there or prefill.model)  # ``body`` is as the other engine gets it
    try:
        client = Client(upstream, upstream.timeouts.first_byte or _LONGEST_S)
        response = await client.request("POST", path, job.ranked(upstream, body))
    except (UpstreamError, Overloaded) as error:
        fleet.failed(prefill.backend, error.message)
        raise
    if response.status == 200:
        fleet.succeeded(prefill.backend)
        fleet.answered(prefill.load, (job.context.clock.now() - began) * 1000)
    return response


# --- both at once


async def _bootstrap(job: Job, prefill: Candidate, path: str, body: bytes) -> tuple[bytes, PromptRequest]:
    """Have ``prefill`` read the prompt from now on; the other engine gets the same body.

    Raises ``RequestError`` if ``prefill`` cannot be asked.
    """
    context, backend = job.context, prefill.backend
    upstream, driver = context.upstreams.get(backend), context.drivers[backend].bootstrap
    if upstream is None or driver is None:
        raise UpstreamError(f"The configuration no longer has backend '{backend}'")
    slot = PromptSlot(job, prefill)
    try:
        await slot.granted_or_not
        port = await context.engine_facts.bootstrap_port(upstream)
        body = driver.bootstrap(body, upstream.pool.origin.host, port)
    except UpstreamError as error:
        slot.release()
        context.fleet.failed(backend, error.message)
        raise
    except BaseException:
        slot.release()
        raise
    return body, PromptRequest(_read_for_another(job, prefill, upstream, path, body), slot.release)


async def _read_for_another(job: Job, prefill: Candidate, upstream: Upstream, path: str, body: bytes) -> None:
    """Have ``prefill`` read the prompt. Its answer has no use, unless it is a refusal, which is raised."""
    context, backend = job.context, prefill.backend
    try:
        response = await _ask(job, prefill, upstream, path, body)
    except RequestError:
        context.engine_facts.remove_port(backend)
        raise
    problem = _refusal(path, response)
    if problem is None:
        return
    why, is_wrong = problem
    error = f"Backend '{backend}' {why}"
    if is_wrong:
        raise InvalidRequest(error)
    context.engine_facts.remove_port(backend)
    if response.status != 429:
        context.fleet.failed(backend, why)
    raise UpstreamError(error)


def _refusal(path: str, response: EngineResponse) -> tuple[str, bool] | None:
    """Why an engine did not read a prompt, and whether the request is at fault; ``None`` if it has read it."""
    if response.status != 200:
        shown = response.body[:_SHOWN].decode(errors="replace")
        return f"answered {response.status} to the prompt: {shown}", response.status in _WRONG
    if not response.body.startswith(b"data:"):
        return None
    broken = StreamCheck(stream_form(path)).look(response.body)
    return None if broken is None else (broken.why, bool(broken.blamed))


class PromptSlot:
    """A share of the load of ``candidate``, and a slot of its queue if it has one. Call ``release`` once.

    The queue may still grant or refuse the slot of a request that was cancelled in the same step of the event loop.
    """

    def __init__(self, job: Job, candidate: Candidate) -> None:
        self.granted_or_not: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._load = candidate.load
        self._slot: QueueSlot | None = None
        self._load.begin()
        queue = job.context.queue_of(candidate)
        if queue is None:
            self.granted()
        else:
            self._slot = QueueSlot(self, queue, job.ticket(candidate.replica, queue.now(), waits=False))
            self._slot.take()

    def granted(self) -> None:
        if not self.granted_or_not.done():
            self.granted_or_not.set_result(None)

    def rejected(self, error: RequestError) -> None:
        if not self.granted_or_not.done():
            self.granted_or_not.set_exception(error)

    def release(self) -> None:
        """Give it back."""
        self._load.end()
        if self._slot is not None:
            self._slot.release()
