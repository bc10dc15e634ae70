"""A request to an inference endpoint."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from enginehouse.domain.replica import Candidate, Health, Route
from enginehouse.domain.requirements import Requirements
from enginehouse.fleet.health import REFUSALS, EngineVerdict, verdict
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.hand_over import add_field
from enginehouse.relay.context import RelayContext
from enginehouse.relay.events.stream_form import CHUNKED
from enginehouse.relay.jobs.job import Job, Suspects
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.read import answer_limit, end_user, read_request
from enginehouse.routing.body.rewrite import check_one_model, replace_model

_WITH_USAGE: Final = b'{"include_usage":true}'


class InferenceJob(Job):
    """A ``POST`` that is routed by its body."""

    method = "POST"
    repeatable = True
    raw = False
    retry_statuses: ClassVar = frozenset({429, 500, 502, 503, 504}) | REFUSALS

    def _needs(self, caller: AdmittedCaller | None) -> Requirements:
        request = self.decoded
        if request is None:
            request = read_request(self.path, self.headers, self.body)
            self.body = request.raw
        self.user = end_user(request.body, self.context.hash_users)
        if caller is not None:
            self.answer_limit = answer_limit(request.body)
            if caller.scoped:
                check_one_model(self.body)
        return self.context.router.requirements(request)

    def body_for(self, route: Route) -> bytes:
        """The body with the model's filters applied, and with the name that the engine has for the model.

        A stream that another engine can continue also tells its tokens.
        """
        body, filters, chosen, translation = self.body, self.context.filters, route.chosen, self.translation
        if translation is not None and body is translation.body:
            body = translation.body_for(self.context.engine_facts.thinking(chosen.backend))
        if filters.change_any:
            body = filters.apply(body, route.requested, chosen.model)
        name = chosen.name_there or chosen.model
        if name != route.requested:
            body = replace_model(body, name)
        if self.caller is not None and self.caller.aside:
            body = self._aside(chosen, body)
        assert self.requirements is not None
        return self._continuable(route, self._counted(body)) if self.requirements.stream else body

    def _aside(self, chosen: Candidate, body: bytes) -> bytes:
        """``body`` as its engine leaves the prefix cache to others, if its driver knows how."""
        driver = self.context.drivers.get(chosen.backend)
        return body if driver is None or driver.cache is None else driver.cache.aside(body, chosen.load.slots)

    def _counted(self, body: bytes) -> bytes:
        """The body of a stream, which asks for its usage if that is kept and the client does not ask."""
        if not self.context.asks_usage or self.path not in CHUNKED:
            return body
        asked = add_field(body, "stream_options", _WITH_USAGE)
        self.hides_usage = asked is not body
        return asked

    def _continuable(self, route: Route, body: bytes) -> bytes:
        """``body`` with the fields by which another engine can continue the stream, if there is another one."""
        context, chosen, continuer = self.context, route.chosen, self.context.continuer
        self.history = None
        if continuer is None:
            return body
        typed = self.path not in CHUNKED
        if (typed and self.path not in context.protocols) or context.continuation.of(chosen.model) == "error":
            return body
        if len(context.fleet.snapshot.candidates(chosen.model)) < 2:
            queue = context.queue_of(chosen)
            if queue is None or not queue.launches:
                return body
        driver = context.drivers.get(chosen.backend)
        if driver is None:  # a reload has just removed it
            return body
        share, continuation = context.continuation_share, driver.continuation
        if not typed:
            self.history, body = continuer.keep(self.path, body, continuation, share)
            return body
        protocol, knows = context.protocols[self.path], partial(_knows_model, context)
        self.history = continuer.keep_typed(self.path, body, continuation, share, protocol, knows)
        return body

    def request(self, upstream: Upstream, body: bytes) -> bytes:
        told = b""
        if self.caller is not None:
            body, told = self.ranked(upstream, body), self.caller_lines(upstream)
        return upstream.post(self.path, self.headers, self.request_id, body, self.trace_lines, told)

    def judge(self, route: Route, status: int, first_byte: float, suspects: Suspects) -> Suspects:
        fleet, chosen = self.context.fleet, route.chosen
        if status < 400:
            fleet.answered(chosen.load, first_byte * 1000)
            return suspects
        said = verdict(status)
        if said is EngineVerdict.REFUSED:  # alive, but perhaps unable
            fleet.succeeded(chosen.backend)
            return (*suspects, (chosen, status))
        if said is EngineVerdict.UNSURE:
            if not suspects and not self._may_go_elsewhere(route):
                fleet.doubted(chosen.backend, f"answered {status}")
            return (*suspects, (chosen, status))
        if said is EngineVerdict.GOOD:
            fleet.answered(chosen.load, first_byte * 1000)
        elif said is EngineVerdict.FAILED:
            fleet.failed(chosen.backend, f"answered {status}")
        return suspects

    def served(self, route: Route, status: int, suspects: Suspects) -> None:
        if status >= 400 and verdict(status) is not EngineVerdict.GOOD:
            return
        fleet = self.context.fleet
        fleet.succeeded(route.chosen.backend)
        if suspects or fleet.has_suspects:
            self._contradict(route.chosen, suspects)

    def _may_go_elsewhere(self, route: Route) -> bool:
        """Whether another backend can show which is at fault, the request or the engine at the end of ``route``."""
        backend = route.chosen.backend
        others = self.context.fleet.snapshot.candidates(route.chosen.model)
        return self.max_retries > 0 and any(
            each.backend != backend and each.health is Health.HEALTHY for each in others
        )

    def _contradict(self, chosen: Candidate, suspects: Suspects) -> None:
        """Count the answers of ``suspects`` against them, because ``chosen`` serves the request."""
        fleet = self.context.fleet
        fleet.served(chosen.backend, chosen.model)
        for suspect, status in suspects:
            if status in REFUSALS:
                fleet.refused(suspect.backend, suspect.model, status)
            else:
                fleet.failed(suspect.backend, f"answered {status} to what another backend could serve")


def _knows_model(context: RelayContext, name: str) -> bool:
    return context.endpoints.knows(name, context.fleet.snapshot)
