"""A client's request as a job for an engine."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

from enginehouse.config.section import BrokenStreamRule
from enginehouse.domain.errors import CapabilityMismatch, ModelNotFound, RequestError
from enginehouse.domain.replica import Candidate, Health, Route, Snapshot, SomeBackends
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import InferenceRequest, Requirements
from enginehouse.domain.ticket import Ticket
from enginehouse.domain.tokens import Tokens
from enginehouse.fleet.health import REFUSALS, EngineVerdict, verdict
from enginehouse.interfaces.authenticators import AdmittedCaller, Reserved
from enginehouse.interfaces.continuers import KeptStream
from enginehouse.interfaces.protocols import TranslatedRequest
from enginehouse.interfaces.schedulers import CallerTurn
from enginehouse.relay.answers.gathering_writer import GatheringWriter
from enginehouse.relay.context import RelayContext
from enginehouse.relay.engine_facts import PATHS, with_priority
from enginehouse.relay.events.stream_form import CHUNKED
from enginehouse.relay.heads import Behalf, deadline_in
from enginehouse.relay.upstream.upload import Upload
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.read import answer_limit, end_user, read_request
from enginehouse.routing.body.rewrite import add_field, check_one_model, replace_model
from enginehouse.scheduling.flow_control import next_turn
from enginehouse.telemetry.answer_meter import AnswerSize
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.plugin_failures import log_plugin_failure, plugin_errors, plugin_failed
from enginehouse.telemetry.trace_context import Trace, with_trace

_ids = itertools.count(1)
Suspects = tuple[tuple[Candidate, int], ...]
"""The answers of an engine that cannot serve what others may serve: it lacks the model, or the gateway's key."""


class Job(ABC):
    """Knows what its request needs, where it can go, what is written to an engine, and how to judge the answer.

    - ``began``: when the request was whole, on the context's clock.
    - ``method``: HTTP's.
    - ``answer_limit``: the most tokens of the answer, if the body says so.
    - ``user``: the end user that the body names, if any.
    - ``decoded``: the request, if its body has been read already.
    - ``keep_alive``: the idle seconds for which it wants its engine kept, if it says so.
    - ``translation``: what has made it of a client's in another protocol.
    - ``repeatable``: the request may reach an engine twice.
    - ``retry_statuses``: answers that are a reason to ask another replica. Of those in ``REFUSALS``, the first one is
      the client's if all replicas give one.
    - ``raw``: an answer that is not an error passes as it comes, head first; otherwise a stream passes in whole events,
      and the head waits for the body.
    - ``loads``: the model is loaded for it.
    - ``hedges``: while it is slow, another replica may be asked, too.
    - ``fallbacks``: other models may serve it, as the configuration says.
    - ``prepares``: each try begins with ``prepare``.
    - ``continues``: it is what is left of a broken stream, so its tries are no retries of the request.
    - ``history``: keeps what the client gets of a stream, if it can be continued; ``None`` otherwise.
    - ``trace``: set from the beginning if the request is sampled.
    - ``trace_id``: empty if the request is not traced.
    - ``trace_lines``: tell an engine of its span, or that there is none; empty where the client's own lines pass.
    - ``hides_usage``: the gateway asked for the usage at the end of a stream, which is not for the client.
    - ``gathering``: the writer that makes one answer of a stream, if engines may be asked for one in place of it.
    - ``limit_lines``: the header lines that tell a client of its limits.
    - ``backend``: the only one that may serve it; empty for any.
    - ``upload``: the rest of a body that follows what ``request`` returns.
    - ``protocol_line``: the header line that tells a client whether its protocol was translated; empty for OpenAI's.
    """

    method: str
    repeatable: bool
    raw: bool
    loads: bool = True
    hedges: bool = True
    fallbacks: bool = True
    retry_statuses: ClassVar[frozenset[int]]
    prepares: bool = False
    continues: bool = False
    backend: str = ""
    upload: Upload | None = None
    gathering: GatheringWriter | None = None

    def __init__(self, context: RelayContext, path: str, headers: Headers, request_id: bytes) -> None:
        self.context = context
        self.path = path
        self.headers = headers
        self.request_id = request_id
        self.body = b""
        self.decoded: InferenceRequest | None = None
        self.caller: AdmittedCaller | None = None
        self.user: str | None = None
        self.protocol_line = b""
        self.limit_lines = b""
        self.hides_usage = False
        self.keep_alive: float | None = None
        self.translation: TranslatedRequest | None = None
        self.answer_limit: int | None = None
        self._reserved: tuple[Reserved, ...] = ()
        self._turn: CallerTurn | None = None
        self.requirements: Requirements | None = None
        self.trace: Trace | None = None
        self.trace_id = self.trace_lines = b""
        if context.tracer is not None:
            self.trace, self.trace_lines = context.tracer.begin(headers)
            if self.trace is not None:
                self.trace_id, self.trace_lines = self.trace.trace_id, self.trace.lines(0)
        self.history: KeptStream | None = None
        self.began = context.clock.now()

    @property
    def engine_headers(self) -> Headers:
        """The client's headers, with the trace that the engine continues."""
        lines = self.trace_lines
        return with_trace(self.headers, lines) if lines else self.headers

    @property
    def engine_path(self) -> str:
        """The endpoint that the engine is asked."""
        return self.path

    @property
    def key(self) -> str | None:
        """The name of the caller's key."""
        return self.caller.name if self.caller is not None else None

    @property
    def gathers(self) -> bool:
        """Whether its engine may be asked for a stream although its client wants none."""
        return self.gathering is not None and self.gathering.whole is not None

    @property
    def longest_wait(self) -> float:
        """The seconds that the request may wait before it is sent. Raises ``InvalidRequest``."""
        asked = deadline_in(self.headers)
        if asked is None and self.caller is not None:
            asked = self.caller.ttft_objective or None
        return math.inf if asked is None else asked

    @property
    def turn(self) -> CallerTurn | None:
        """The request's turn in queues, the same each time, if callers take turns. Raises ``PluginFailed``."""
        turns = self.context.turns
        if self._turn is None and turns is not None and self.requirements is not None:
            weight = self.caller.weight if self.caller is not None else 1.0
            self._turn = next_turn(turns, self.key, weight, self.requirements.estimated_tokens, self.answer_limit)
        return self._turn

    def turn_granted(self) -> None:
        """Note that the request is served now. Raises ``PluginFailed``."""
        turn = self.turn
        if turn is not None:
            self._tell_turn(turn.granted)

    def ticket(self, replica: str, arrived: float, *, waits: bool = True) -> Ticket:
        """A place in the queue for ``replica``, since ``arrived`` on the queue's clock. Raises ``InvalidRequest``.

        ``waits``: until its deadline, and for its turn. Otherwise it takes a free slot or has waited elsewhere.
        """
        ticket = Ticket(
            id=f"{self.request_id.decode()}/{next(_ids)}",  # clients may send the same request id twice
            replica=replica,
            priority=self.priority,
            arrived=arrived,
            caller=self.key,
        )
        if waits:
            ticket.deadline, turn = arrived + self.longest_wait, self.turn
            if turn is not None:
                ticket.turn = turn.at
        return ticket

    @property
    def priority(self) -> int:
        """The request's priority in a queue: higher first."""
        return self.caller.priority if self.caller is not None else 0

    def caller_lines(self, upstream: Upstream) -> bytes:
        """The header lines that tell the gateway behind ``upstream`` whose request it is; empty for an engine."""
        if self.caller is None or not upstream.pass_caller:
            return b""
        return Behalf(self.caller.name, self.caller.priority).lines()

    def ranked(self, upstream: Upstream, body: bytes) -> bytes:
        """``body`` with the priority of the caller's key, if the engine behind ``upstream`` orders requests by it."""
        if self.caller is None or self.path not in PATHS:
            return body
        order = self.context.engine_facts.priority_order(upstream)
        return with_priority(body, order, self.caller.priority) if order else body

    def advise(self, error: RequestError) -> None:
        """Add the names of models to an error that says why the request can have none."""
        if isinstance(error, ModelNotFound):
            error.suggest(self._usable_models())
        elif isinstance(error, CapabilityMismatch) and self.requirements is not None:
            snapshot, tokens = self.context.fleet.snapshot, self.requirements.estimated_tokens
            error.name_able(
                [
                    name
                    for name in self._usable_models()
                    if any(_has(each, error.missing, tokens) for each in snapshot.candidates(name))
                ]
            )

    def _usable_models(self) -> list[str]:
        """The models and aliases that the caller may name, and may know of."""
        caller, hidden = self.caller, {name for name, each in self.context.config.models.items() if each.unlisted}
        listed = {name: None for name in self.context.fleet.snapshot.models if name not in hidden}
        for name, alias in self.context.filters.aliases.named.items():
            if name not in hidden and any(target in listed for target in alias.targets):
                listed[name] = None
        return [name for name in listed if caller is None or caller.may_use(name)]

    @property
    def max_retries(self) -> int:
        """The most retries of the request."""
        return self.context.config.routing.max_retries

    def broken_stream(self, model: str) -> BrokenStreamRule:
        """The rule for a stream of ``model`` whose engine breaks."""
        config = self.context.config
        settings = config.models.get(model)
        return (settings.broken_stream if settings is not None else None) or config.routing.broken_stream

    async def prepare(self, route: Route) -> bytes:
        """Make the body for ``route``, if that takes time. Raises ``RequestError`` if the engine cannot use it."""
        return self.body_for(route)

    def admit(self, body: bytes, caller: AdmittedCaller | None, address: str | None = None) -> None:
        """Take the whole request, within the limits of ``caller``, and of its client's ``address`` if that is given.

        Raises ``RequestError``.
        """
        self.began = self.context.clock.now()
        self.body = body
        self.caller = caller  # first: the record of a refused request names it
        self.requirements = requirements = self._needs(caller)
        requirements.user = self.user
        if caller is not None:
            requirements.caller = caller.name
        if self.context.router.has_rules:
            self.context.router.apply_rules(requirements, self.headers)
        if caller is not None:
            try:
                reserved = caller.admit(requirements, self.answer_limit)
                if reserved is not None:
                    self._reserved, self.limit_lines = (reserved,), reserved.lines
            except RequestError:
                raise
            except BaseException as error:
                raise plugin_failed(self.context.counted_by, error) from error
        addresses = self.context.addresses
        if addresses is not None and address is not None:
            with plugin_errors(self.context.counted_by):
                reserved = addresses.admit(address, self.headers, requirements, self.answer_limit)
                if reserved is not None:
                    self._reserved, self.limit_lines = (*self._reserved, reserved), self.limit_lines or reserved.lines

    def release(self, answer: AnswerSize, model: str, *, left: bool = False) -> None:
        """Count the request out, with the ``answer`` of ``model``, if ``admit`` has counted it in.

        ``left``: its client left while an engine worked for it, whose work counts as far as it can be estimated.
        """
        if left and answer[2] is None and self.requirements is not None:
            answer = answer[0], answer[1], Tokens(self.requirements.estimated_tokens, answer[1])
        if self._turn is not None and self.requirements is not None:
            prompt = self.requirements.estimated_tokens
            self._tell_turn(partial(self._turn.ended, _used(prompt, answer) or prompt))
        if self.gathering is not None:
            self.gathering.release()
        reserved, self._reserved = self._reserved, ()
        for each in reserved:
            assert self.requirements is not None
            try:
                each.settle(self.requirements.estimated_tokens, answer, model)
            except BaseException as error:
                log_plugin_failure(self.context.counted_by, "failed to count a request out", error)

    def _tell_turn(self, event: Callable[[], None]) -> None:
        assert self.context.turns is not None
        try:
            event()
        except BaseException as error:
            log_plugin_failure(self.context.turns[0], "failed to follow a turn", error)

    def route(self, failed: tuple[str, ...], *, alone: bool = False) -> Route:
        """Where to send the request, to none of the replicas that ``failed``. Raises ``RequestError`` if nowhere.

        A job that ``prepares`` gets two engines where the strategy and the plugin of hand-overs say so, but ``alone``
        only one. The trace, if there is one, keeps the figures of the decision.
        """
        context, trace, requirements = self.context, self.trace, self.requirements
        assert requirements is not None
        if self.prepares and not alone and context.router.hands_over:
            find = partial(self.route, alone=True)
            return context.router.choose_pair(requirements, context.fleet.snapshot, context.drivers, find, failed)
        snapshot = self._snapshot()
        traced_at = context.clock.now() if trace is not None else None
        try:
            return context.router.choose(
                requirements,
                snapshot,
                failed,
                fallbacks=self.fallbacks,
                traced_at=traced_at,
                waited_for=context.waiting_room.models,
            )
        except RequestError:
            if trace is not None and traced_at is not None and not failed:
                trace.refused = context.router.refused(requirements, snapshot, traced_at)
            raise

    def reroute(self, waiting: Route, failed: tuple[str, ...]) -> Route | None:
        """The route now of a request that waits along ``waiting``, to the same model; ``None`` if that is lost."""
        assert self.requirements is not None
        traced_at = self.context.clock.now() if self.trace is not None else None
        snapshot = self._snapshot()
        return self.context.router.choose_again(self.requirements, snapshot, waiting, failed, traced_at=traced_at)

    def _snapshot(self) -> Snapshot:
        """The replicas that may serve the request."""
        snapshot = self.context.fleet.snapshot
        return SomeBackends(snapshot, (self.backend,)) if self.backend else snapshot

    def find_route(self, failed: tuple[str, ...]) -> tuple[Route, bytes] | None:
        """Another route and the body for it, or ``None`` if there is none."""
        try:
            with log_context.named(self):
                route = self.route(failed)
                return route, b"" if route.waits else self.body_for(route)
        except RequestError:
            return None

    def too_short(self, refusing: Candidate) -> tuple[str, ...]:
        """The replicas that are not known to have a longer context than the one ``refusing`` the request."""
        assert self.requirements is not None
        limit = refusing.capabilities.context_length or self.requirements.estimated_tokens
        rows = self.context.fleet.snapshot.models.values()
        return tuple([each.replica for row in rows for each in row if (each.capabilities.context_length or 0) <= limit])

    def client_lines(self, lines: bytes, upstream: Upstream) -> bytes:
        """The header lines of an answer, as the client of a ``raw`` job gets them."""
        return lines

    @abstractmethod
    def _needs(self, caller: AdmittedCaller | None) -> Requirements:
        """The requirements of the request of ``caller``. Raises ``InvalidRequest``."""

    @abstractmethod
    def body_for(self, route: Route) -> bytes:
        """The body as the engine at the end of ``route`` gets it. Raises ``InvalidRequest``."""

    def request(self, upstream: Upstream, body: bytes, path: str = "") -> bytes:
        """The whole request as it is written to an engine; ``path``: if not the client's own."""
        told = b""
        if self.caller is not None:
            body, told = self.ranked(upstream, body), self.caller_lines(upstream)
        return upstream.post(path or self.path, self.headers, self.request_id, body, self.trace_lines, told)

    @abstractmethod
    def judge(self, route: Route, status: int, first_byte: float, suspects: Suspects) -> Suspects:
        """Count the head of an answer, if it is bad, against its backend; ``first_byte``: the time to it in seconds.

        Takes and returns the suspects, each with its answer, which counts against them only if another backend can
        serve the request.
        """

    @abstractmethod
    def served(self, route: Route, status: int, suspects: Suspects) -> None:
        """Count a whole answer, if it is good, for its backend, and against the ``suspects``."""


def _has(candidate: Candidate, capabilities: Sequence[str], tokens: int) -> bool:
    """Whether a replica is known to have ``capabilities``: a context for so many ``tokens`` among them."""
    had = candidate.capabilities
    return all(
        (had.context_length or 0) >= tokens if name == "context_length" else getattr(had, name, None) is True
        for name in capabilities
    )


def _used(prompt: int, answer: AnswerSize) -> int | None:
    """The tokens of a request and its ``answer``, whose ``prompt`` is estimated; ``None`` if they were not counted."""
    size, events, tokens = answer
    if tokens is not None:
        return tokens.input + tokens.output
    return None if size and not events else prompt + events


_WITH_USAGE: Final = b'{"include_usage":true}'


class InferenceJob(Job):
    """A ``POST`` that is routed by its body. ``keeps``: another engine can go on with its stream."""

    keeps: ClassVar[bool] = True
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
        if self.requirements.stream:
            return self._continuable(route, self._counted(body))
        return body if self.gathering is None else self._gathered(route, body, self.gathering)

    def _gathered(self, route: Route, body: bytes, gathering: GatheringWriter) -> bytes:
        """``body`` as one for a stream, if another engine can continue that; otherwise it has no use here."""
        context = self.context
        if gathering.whole is None and context.continuer is not None:
            gathering.whole = context.continuer.gathered(self.path, self.body, context.gathered_share)
        if gathering.whole is None:
            return body
        asked = self._continuable(route, gathering.whole.as_stream(body))
        return body if self.history is None else asked

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
        context, chosen, path, continuer = self.context, route.chosen, self.path, self.context.continuer
        self.history = None
        protocol = None if path in CHUNKED else context.protocols.get(path)
        has_no_form = protocol is None and path not in CHUNKED
        if continuer is None or has_no_form or not self.keeps or self.broken_stream(chosen.model) == "error":
            return body
        if len(context.fleet.snapshot.candidates(chosen.model)) < 2:
            queue = context.queue_of(chosen)
            if queue is None or not queue.launches:
                return body
        driver = context.drivers.get(chosen.backend)
        if driver is None:  # a reload has just removed it
            return body
        driven, share = driver.continuation, context.continuation_share
        self.history, body = continuer.keep(path, body, driven, share, protocol, context.knows_model)
        return body

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
