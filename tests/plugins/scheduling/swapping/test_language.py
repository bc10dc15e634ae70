"""The language of the matrix: what can be written, and how what cannot is told."""

from __future__ import annotations

from textwrap import dedent

import pytest

from enginehouse import ConfigError
from tests.support.swapping import host_of, installed_swapper


def allows(expression: str, models: str) -> bool:
    """Whether an expression allows models, given as words, together."""
    target, *running = models.split()
    host = host_of("a", "b", "c", "d", "model-name.v2", "modèle_2", "org/llama:8b", "a & b")
    return not installed_swapper("matrix", host, sets={"one": expression}).eviction_for(target, running)


def refuse(**sets: str) -> str:
    """The refusal of a matrix with these sets, from the set's name on."""
    with pytest.raises(ConfigError) as caught:
        installed_swapper("matrix", host_of("a", "b", "c", "org/llama"), sets=sets)
    return str(caught.value).removeprefix("scheduling.matrix.sets.")


def test_and_binds_more_than_or() -> None:
    assert allows("a | b & c", "b c")
    assert not allows("a | b & c", "a c")
    assert allows("(a | b) & c", "a c")
    assert not allows("(a | b) & c", "a b")


def test_space_is_free() -> None:
    assert allows("(a|b)&c", "b c")
    assert allows("\n(a\n\t| b)\n & c\n", "b c")


@pytest.mark.parametrize("name", ["model-name.v2", "modèle_2", '"org/llama:8b"', '"a"'])
def test_names_go_bare_or_in_quotes(name: str) -> None:
    assert allows(f"{name} & b", f"{name.strip(chr(34))} b")


def test_signs_in_quotes_are_part_of_a_name() -> None:
    it = installed_swapper("matrix", host_of("a & b", "a", "b"), sets={"my set": '"a & b"', "two": '+"my set" & a'})

    assert it.eviction_for("a & b", ["a", "b"]) == ["b"]


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "line 1, column 1: empty expression"),
        (" \n ", "line 1, column 1: empty expression"),
        ("(a", "line 1, column 1: missing closing parenthesis"),
        ("a & ((a | b)", "line 1, column 5: missing closing parenthesis"),
        ("a)", "line 1, column 2: unexpected ')'"),
        ("()", "line 1, column 2: unexpected ')'"),
        ("a &", "line 1, column 4: unexpected end"),
        ("a & | b", "line 1, column 5: unexpected '|'"),
        ("a b", "line 1, column 3: unexpected 'b'"),
        ("(a b)", "line 1, column 4: unexpected 'b'"),
        ("a @ b", "line 1, column 3: unexpected character '@'"),
        ("org/llama", "line 1, column 4: unexpected character '/'"),
        ("a & +", "line 1, column 5: expected a set's name after '+'"),
        ('a & "b', "line 1, column 5: missing closing quote"),
        ('a & ""', "line 1, column 5: empty name"),
        ("a |\n  (b &\n   d)", "line 3, column 4: unknown model or var 'd'"),
        ("a & +two", "line 1, column 5: undefined set 'two'"),
    ],
)
def test_an_error_has_its_place(expression: str, told: str) -> None:
    assert refuse(one=expression).startswith(f"one: {told}\n")


def test_an_error_shows_its_line_and_points_to_the_place() -> None:
    assert refuse(one='a\n\t& ("org/lama" | b)') == dedent(
        """\
        one: line 2, column 5: unknown model or var 'org/lama'
            \t& ("org/lama" | b)
            \t   ^^^^^^^^^^ (did you mean "org/llama"?)"""
    )


def test_a_name_with_a_slash_is_told_to_go_in_quotes() -> None:
    assert "in double quotes" in refuse(one="org/llama")


def test_a_name_left_open_ends_with_its_line() -> None:
    assert refuse(one='"a\n& b').endswith("    ^")


def test_an_undefined_set_comes_with_what_may_have_been_meant() -> None:
    assert refuse(base="a", one="b & +bse").endswith('    ^^^^ (did you mean "base"?)')


def test_sets_in_a_circle_are_refused_with_their_way() -> None:
    assert refuse(top="a | +one", one="b & +two", two="(c | +one)").startswith(
        "two: line 1, column 6: circular reference one -> two -> one\n"
    )
    assert "circular reference one -> one" in refuse(one="a & +one")


def test_a_set_may_be_referred_to_twice() -> None:
    it = installed_swapper("matrix", host_of("a", "b", "c"), sets={"base": "a | b | c", "two": "+base & +base"})

    assert it.eviction_for("a", ["b"]) == []
    assert it.eviction_for("a", ["b", "c"]) == ["c"]
