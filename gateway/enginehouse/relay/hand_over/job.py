"""A request whose prompt one engine reads, and which another one answers."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

import msgspec

from enginehouse.domain.errors import InvalidRequest, Overloaded, RequestError, UpstreamError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.route import Route
from enginehouse.interfaces.drivers import Driver, EngineResponse
from enginehouse.interfaces.hand_over import handed_over, prompt_request, take_over
from enginehouse.relay.continuation.asking import one_token
from enginehouse.relay.gathering.gathering_job import GatheringJob
from enginehouse.relay.hand_over.prompt_request import PromptRequest
from enginehouse.relay.hand_over.prompt_slot import PromptSlot
from enginehouse.relay.hand_over.rules import can_hand_over, can_pair, never_alone
from enginehouse.relay.stream_check import StreamCheck
from enginehouse.relay.stream_form import stream_form
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_LONGEST_S = 3600.0
"""The time limit of an engine that has none."""
_ASKED_S = 5.0
"""How long an engine may take to tell its port."""
_WRONG = (400, 413, 422)
"""The answers to a request that another engine would refuse too."""
_SHOWN = 300
"""How many bytes of an engine's refusal are shown."""


class HandOverJob(GatheringJob):
    """Where the strategy says so, one engine reads the prompt, and hands its KV cache over to the one that answers.

    With ``kv_transfer_params`` they are asked one after the other. If the first one cannot be asked, the other one
    reads the prompt itself: the client notices nothing. Engines that bootstrap are asked at the same time; if either
    fails, the request is cancelled at the other one, and sent again.
    """

    __slots__ = ("prompt",)

    prepares = True

    def route(self, failed: tuple[str, ...]) -> Route:
        """Passes over engines that serve no request alone, and find no other one."""
        while True:
            route = self._with_decode(super().route(failed), failed)
            chosen = route.chosen
            if route.prefill is not None or not never_alone(self._drivers[chosen.backend], chosen):
                return route
            failed = (*failed, chosen.replica)

    async def prepare(self, route: Route) -> bytes:
        body, prefill = self.body_for(route), route.prefill
        self.prompt = None
        if prefill is None:
            return body
        if self._drivers[prefill.backend].bootstraps:
            return await self._bootstrap(prefill, body)
        parameters = await self._read_prompt(prefill, body)
        return body if parameters is None else take_over(body, parameters)

    @property
    def _drivers(self) -> Mapping[str, Driver]:
        return self.context.continuation.drivers

    def _with_decode(self, route: Route, failed: tuple[str, ...]) -> Route:
        drivers = self._drivers
        if not can_hand_over(drivers, self.path, route.chosen):
            return route
        assert self.requirements is not None
        context = self.context
        both = context.router.hand_over(self.requirements, context.fleet.snapshot, route, failed)
        if both.prefill is None or not can_hand_over(drivers, self.path, both.chosen):
            return route
        return both if can_pair(drivers, both.prefill, both.chosen) else route

    # --- one after the other

    async def _read_prompt(self, prefill: Candidate, body: bytes) -> msgspec.Raw | None:
        """Have ``prefill`` read the prompt; returns the parameters for the other engine, if it gives any."""
        upstream = self.context.upstreams.get(prefill.backend)
        if upstream is None:  # a reload has just removed it
            return None
        slot = PromptSlot(self, prefill)
        try:
            await slot.granted_or_not
            response = await self._ask(prefill, upstream, prompt_request(one_token(body)))
        except RequestError:
            return None
        finally:
            slot.release()
        return handed_over(response.body) if response.status == 200 else None

    async def _ask(self, prefill: Candidate, upstream: Upstream, body: bytes) -> EngineResponse:
        context = self.context
        began = perf_counter()
        try:
            client = Client(upstream, upstream.timeouts.first_byte or _LONGEST_S)
            response = await client.request("POST", self.path, self.ranked(upstream, body))
        except (UpstreamError, Overloaded) as error:
            context.fleet.failed(prefill.backend, error.message)
            raise
        if response.status == 200:
            context.fleet.succeeded(prefill.backend)
            prefill.load.answered((perf_counter() - began) * 1000)
        return response

    # --- both at once

    async def _bootstrap(self, prefill: Candidate, body: bytes) -> bytes:
        """Have ``prefill`` read the prompt from now on; returns the body for the other engine, which is the same.

        Raises ``RequestError`` if ``prefill`` cannot be asked.
        """
        context, backend = self.context, prefill.backend
        upstream = context.upstreams.get(backend)
        if upstream is None:
            raise UpstreamError(f"The configuration no longer has backend '{backend}'")
        slot, driver = PromptSlot(self, prefill), self._drivers[backend]
        try:
            await slot.granted_or_not
            port = await context.bootstrap_ports.of(upstream, driver, Client(upstream, _ASKED_S))
            body = driver.bootstrap(body, upstream.pool.origin.host, port)
        except UpstreamError as error:
            slot.release()
            context.fleet.failed(backend, error.message)
            raise
        except BaseException:
            slot.release()
            raise
        self.prompt = PromptRequest(self._read_for_another(prefill, upstream, body), slot.release)
        return body

    async def _read_for_another(self, prefill: Candidate, upstream: Upstream, body: bytes) -> None:
        """Have ``prefill`` read the prompt. Its answer has no use, unless it is a refusal, which is raised."""
        context, backend = self.context, prefill.backend
        try:
            response = await self._ask(prefill, upstream, body)
        except RequestError:
            context.bootstrap_ports.remove(backend)
            raise
        problem = _refusal(self.path, response)
        if problem is None:
            return
        why, is_wrong = problem
        error = f"Backend '{backend}' {why}"
        if is_wrong:
            raise InvalidRequest(error)
        context.bootstrap_ports.remove(backend)
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
    return None if broken is None else (broken.why, broken.is_request)
