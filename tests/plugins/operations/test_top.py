"""What the keys of ``enginehouse top`` do."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_operations.top import RequestAct, TopRequest, TopView, _look


def live(id: str, model: str, age: float, tokens: int = 0) -> TopRequest:
    return TopRequest(id, "/v1/completions", model, "serving", None, None, f"{model}@gpu", 0, tokens, age, "team")


LIVE = [live("r1", "big", 10, 7), live("r2", "small", 30, 9), live("r3", "big", 20, 8)]
BACKENDS = ("gpu-1", "gpu-10", "rack")


def after(keys: str = "") -> TopView:
    view = TopView()
    view.look(LIVE, BACKENDS)
    assert view.press(keys) == []
    return view


def rows(view: TopView, most: int = 9) -> list[str]:
    """The ids of the shown requests; the selected one has a star."""
    table = view.table(most, 80)
    marked = zip(table.columns[0].cells, table.rows, strict=True)
    return [f"{id}{'*' if row.style else ''}" for id, row in marked]


def test_the_oldest_is_first_until_another_order_is_chosen() -> None:
    assert rows(after()) == ["r2*", "r3", "r1"]
    assert rows(after("s")) == ["r2*", "r3", "r1"]  # by tokens
    assert rows(after("ss")) == ["r1", "r3", "r2*"]  # by model
    assert rows(after("r")) == ["r1", "r3", "r2*"]


def test_a_filter_narrows_until_it_is_left() -> None:
    assert rows(after("/BI\x7fIG\r")) == ["r3*", "r1"]
    assert rows(after("/none\r")) == []
    assert after("/none\rr").heading() == "Live requests: 0, by age, reversed, only with 'none'"
    assert rows(after("/none\r/\x1b")) == ["r2*", "r3", "r1"]
    assert after("/bi").line() == "Only requests with (Enter, Esc): bi_"


def test_the_selection_stays_with_its_request() -> None:
    view = after("\x1b[Bj")
    assert rows(view) == ["r2", "r3", "r1*"]
    view.press("r")
    view.look(LIVE[:2], BACKENDS)
    assert rows(view) == ["r1*", "r2"]
    view.look(LIVE[1:], BACKENDS)
    assert rows(view) == ["r3*", "r2"]  # it has ended; the next one has its place


def test_few_lines_show_the_rows_around_the_selected_one() -> None:
    many = [live(f"n{number}", "m", -number) for number in range(30)]
    view = TopView()
    view.look(many, BACKENDS)
    view.press("k")
    assert rows(view, 3) == ["n27", "n28", "n29*"]
    view.press("kk")
    assert rows(view, 3) == ["n26", "n27*", "n28"]


def test_cancelling_is_asked_first() -> None:
    view = after("c")
    assert view.line() == "Cancel r2? y/n"
    assert view.press("y") == [RequestAct("cancel", "r2")]
    assert after("cnc\x1b").line().startswith("↑↓ select")


def test_a_move_names_a_backend_or_how_one_begins() -> None:
    assert after("m").press("r\r") == [RequestAct("move", "r2", "rack")]
    assert after("m").press("gpu-1\r") == [RequestAct("move", "r2", "gpu-1")]
    assert after("mgpu\r").line() == "More than one backend begins with 'gpu': gpu-1, gpu-10"
    assert after("mx\r").line() == "No backend begins with 'x': gpu-1, gpu-10, rack"


def test_without_requests_nothing_can_be_moved() -> None:
    view = TopView()
    view.look([], BACKENDS)
    assert view.press("mckj") == []
    assert view.line().startswith("↑↓ select")
    view.press("q")
    assert view.ended


def test_names_are_shown_as_they_are() -> None:
    view = TopView()
    placing = TopRequest("[red]x", "/v1/x", "m", "placing", "[/] of \x1b[2J", None, None, 0, None, 1.0)
    view.look([placing], BACKENDS)
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown:
        console.print(view.table(5, 120))
    assert "[red]x" in shown.get()
    assert "placing ([/] of \\x1b[2J)" in shown.get()


def test_at_80_columns_names_are_whole_and_ids_are_cut() -> None:
    view = TopView()
    request_id = "0123456789abcdef" * 2
    model, backend = "meta-llama/Llama-3.1-8B-Instruct", "gpu-server-1"
    serving = TopRequest(request_id, "/v1/x", model, "serving", None, None, f"{model}@{backend}", 0, 1234, 12_345.0)
    view.look([serving], BACKENDS)
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(view.table(5, 80))
    heading, row = shown.get().splitlines()
    assert heading.split() == ["request", "model", "phase", "replica", "age", "tokens"]
    assert row.split()[1:] == [model, "serving", backend, "12.3", "s", "1234"]
    assert row.startswith(request_id[:6])


def test_at_80_columns_names_that_are_too_long_go_on_and_figures_stay_whole() -> None:
    view = TopView()
    model = "unsloth-Qwen3-Coder-30B-A3B-Instruct-1M-UD-Q4_K_XL"
    serving = TopRequest("0123456789", "/v1/x", model, "serving", None, None, f"{model}@{model}", 0, 1234, 12_345.0)
    view.look([serving], BACKENDS)
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(view.table(5, 80))
    lines = shown.get().splitlines()
    at = lines[0].index("model"), lines[0].index("phase"), lines[0].index("replica"), lines[0].index("age")
    assert lines[1].split()[-3:] == ["12.3", "s", "1234"]
    assert lines[1][at[1] : at[2]].strip() == "serving"
    for begin, end in ((at[0], at[1]), (at[2], at[3])):
        assert "".join(line[begin:end].strip() for line in lines[1:]) == model


def test_what_is_asked_about_a_request_is_not_done_to_another_one() -> None:
    for keys, asked, act in (("c", "y", RequestAct("cancel", "r2")), ("m", "rack\r", RequestAct("move", "r2", "rack"))):
        view = after(keys)
        line = view.line()
        view.look([each for each in LIVE if each.id != "r2"], BACKENDS)
        assert view.line() == line
        assert view.press(asked) == [act]


def test_an_answer_of_the_gateway_does_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"version": "0", "strategy": "smart", "uptime_s": 1.0, "requests": [], "backends": []}
    answers = {"/api/status": {**status, "requests": 0}, "/api/requests": status}
    monkeypatch.setattr(GatewayClient, "get", lambda _, path: msgspec.json.encode(answers[path]))
    view = TopView()
    view.said = "the engine said \x1b[2J"
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown:
        console.print(_look(GatewayClient("http://gateway"), view, console.size))
    assert "the engine said \\x1b[2J" in shown.get()
