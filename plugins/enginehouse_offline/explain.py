"""``enginehouse explain route`` and ``explain swap``: what would be decided."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import click
import msgspec

from enginehouse import ConfigError, Headers
from enginehouse.commands import config_option
from enginehouse.errors import NotFound
from enginehouse.routing_facts import Explanation
from enginehouse.tickets import SwapPlan
from enginehouse_kit.files import read_file, read_view
from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_kit.output import print_answer, print_json, print_table

_FILE = click.Path(path_type=Path, allow_dash=True)


@click.command()
@config_option
@click.option("--request", metavar="BODY.json", type=_FILE, required=True, help="The request's body; - is stdin.")
@click.option(
    "--state", metavar="STATE.json", type=_FILE, help="The state of the backends; by default, all are healthy and idle."
)
@click.option(
    "--view",
    metavar="VIEW.json",
    type=_FILE,
    help="Figures for strategies that read them, and models that are not configured; by default, none.",
)
@click.option("--path", default="/v1/chat/completions", show_default=True, help="The endpoint that the body is for.")
@click.option(
    "--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="A header of the request; may be repeated."
)
@click.option("--key", metavar="NAME", help="The name of the caller's key.")
@click.option("--url", help="Ask this running gateway, which knows the models and the load of its engines.")
@click.option("--admin-key", envvar="ENGINEHOUSE_KEY", help="The admin key for --url; else $ENGINEHOUSE_KEY.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def route(
    config: Path | None,
    request: Path,
    state: Path | None,
    view: Path | None,
    path: str,
    headers: tuple[str, ...],
    key: str | None,
    url: str | None,
    admin_key: str | None,
    as_json: bool,
) -> None:
    """Show which replica would serve a request, and why.

    With every filter's and scorer's result.

    STATE.json holds {"backends": {"gpu-1": {"healthy": true, "draining": false, "pending": 0, "avg_latency_ms": 0}}}.
    Backends that it leaves out are healthy and idle. "models": [...] names the models of an engine whose models are not
    configured. VIEW.json is an answer of /api/cluster, as for 'explain rescheduling'. With --url, the running gateway
    answers; a state, a view, headers and a key then have no effect.

    The exit status is 0 for every explanation, even if no replica can serve the request.
    """
    asked = _Question(path, [_header(each) for each in headers], key, read_file(request))
    if url is not None:
        explanation = _asked(GatewayClient(url, admin_key), asked)
    else:
        from enginehouse_offline.offline_gateway import OfflineGateway  # much that the help does not need

        explanation = OfflineGateway(config).explain_route(
            asked.path,
            asked.headers,
            asked.body,
            caller=asked.key,
            state=(read_file(state), str(state)) if state else None,
            view=read_view(view) if view else None,
        )
    if as_json:
        print_json(msgspec.json.encode(explanation))
    else:
        rows = [
            (
                each.replica,
                "" if each.score is None else f"{each.score:g}",
                ", ".join(f"{name} {value:g}" for name, value in each.parts.items()),
                each.dropped_by or "",
                each.why or "",
            )
            for each in explanation.candidates
        ]
        print_table(("replica", "score", "parts", "dropped by", "why"), rows)
        click.echo(_verdict(explanation))


class _Question(NamedTuple):
    """A request. ``key``: the name of its caller's key."""

    path: str
    headers: Headers
    key: str | None
    body: bytes


def _asked(gateway: GatewayClient, asked: _Question) -> Explanation:
    """What a running gateway says."""
    try:
        body = msgspec.json.decode(asked.body)
    except msgspec.DecodeError as error:
        raise ConfigError(f"the body is not JSON: {error}") from None
    answer = gateway.post("api", "explain", "route", query=f"?{urlencode({'path': asked.path})}", body=body)
    return gateway.read(answer, Explanation)


def _header(text: str) -> tuple[bytes, bytes]:
    name, colon, value = text.partition(":")
    if not colon:
        raise click.BadParameter(f"'{text}' is not a header: write 'NAME: VALUE'", param_hint="--header")
    return name.strip().lower().encode(), value.strip().encode("latin-1", errors="replace")


def _verdict(explanation: Explanation) -> str:
    if explanation.error is not None:
        return f"refused ({explanation.error['code']}): {explanation.error['message']}"
    prompt = f"; {explanation.prefill} reads the prompt" if explanation.prefill else ""
    if (prefix := explanation.prefix) and prefix.why != "new":
        prompt += f"; {prefix.cached} of {prefix.tokens} tokens are cached ({prefix.why})"
    return f"'{explanation.requested}' goes to {explanation.chosen} (reason: {explanation.reason}){prompt}"


@click.command()
@config_option
@click.argument("model", required=False)
@click.option("--target", metavar="MODEL", help="The model to run; the same as MODEL.")
@click.option("--running", metavar="A,B", default="", help="Running models, least recently used first.")
@click.option("--url", help="Ask this running gateway: its models run.")
@click.option("--admin-key", envvar="ENGINEHOUSE_KEY", help="The admin key for --url; else $ENGINEHOUSE_KEY.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def swap(
    config: Path | None,
    model: str | None,
    target: str | None,
    running: str,
    url: str | None,
    admin_key: str | None,
    as_json: bool,
) -> None:
    """Show which models would stop so that MODEL can run.

    Also which models would then run, and by which rule. With --url, the running gateway answers; --running then
    replaces the models that run there.

    A model that cannot run is an error.
    """
    wanted = model or target
    if not wanted or (model and target and model != target):
        raise click.UsageError("Name one model: enginehouse explain swap MODEL")
    names = [name.strip() for name in running.split(",") if name.strip()]
    if url is not None:
        gateway = GatewayClient(url, admin_key)
        question = {"target": wanted, **({"running": names} if names else {})}
        plan = gateway.read(gateway.post("api", "explain", "swap", body=question), SwapPlan)
    else:
        from enginehouse_offline.offline_gateway import OfflineGateway  # much that the help does not need

        try:
            plan = OfflineGateway(config).explain_swap(wanted, names)
        except NotFound as error:
            raise NotFound(f"{error}. To ask a running gateway, give its --url", details=error.details) from None
    print_answer(msgspec.json.encode(plan), as_json, _swap_verdict(plan))


def _swap_verdict(plan: SwapPlan) -> str:
    stops = f"stops {', '.join(plan.evict)}" if plan.evict else "stops nothing"
    rule = f", set '{plan.set_name}'" if plan.set_name is not None else ""
    cost = f", cost {plan.cost}" if plan.cost is not None else ""
    return f"'{plan.target}' {stops}; then run: {', '.join(plan.set)}{rule}{cost}"
