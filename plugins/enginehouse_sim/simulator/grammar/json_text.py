"""JSON as expressions.

Whitespace, escapes, and empty strings, arrays and objects are accepted, but not suggested.
"""

from __future__ import annotations

from enginehouse_sim.simulator.grammar.expressions import (
    Chain,
    CharacterSet,
    Choice,
    Expression,
    Reference,
    literal,
    optional,
    repeat,
    times,
)
from enginehouse_sim.simulator.model.sampler import WORDS

_NUMBERS = ("1", "2", "3", "5", "8", "12", "20", "42", "64", "100", "365", "1024", "4096", "20000")
_FRACTIONS = ("5", "25", "75", "125")
_DIGITS = "0123456789"
_CONTROLS = "".join(map(chr, range(32)))

SPACE = repeat(CharacterSet(" \t\n\r"))


def _character(suggested: tuple[str, ...]) -> Expression:
    """One character of a string, or its escape."""
    digit = CharacterSet("0123456789abcdefABCDEF")
    escaped = Choice(CharacterSet('"\\/bfnrt'), Chain(CharacterSet("u"), digit, digit, digit, digit))
    return Choice(CharacterSet(f'"\\{_CONTROLS}', suggested, inverted=True), Chain(CharacterSet("\\"), escaped))


def string_of(least: int = 0, most: int | None = None) -> Expression:
    """A string of ``least`` to ``most`` characters."""
    more = _character(tuple(f" {word}" for word in WORDS))
    if most == 0:
        return literal('""')
    full = Chain(_character(WORDS), times(more, max(0, least - 1), None if most is None else most - 1), literal('"'))
    return Chain(literal('"'), full if least else Choice(CharacterSet('"'), full))


def _integer() -> Expression:
    natural = Choice(literal("0"), Chain(CharacterSet("123456789", _NUMBERS), repeat(CharacterSet(_DIGITS))))
    return Chain(optional(literal("-")), natural)


def _number() -> Expression:
    digits = repeat(CharacterSet(_DIGITS))
    fraction = Chain(literal("."), CharacterSet(_DIGITS, _FRACTIONS), digits)
    exponent = Chain(CharacterSet("eE"), optional(CharacterSet("+-")), CharacterSet(_DIGITS), digits)
    return Chain(_integer(), optional(fraction), optional(exponent))


STRING = string_of()
INTEGER = _integer()
NUMBER = _number()
BOOLEAN = Choice(literal("true"), literal("false"))
NULL = literal("null")


def array_of(item: Expression, least: int = 0, most: int | None = None) -> Expression:
    """``least`` to ``most`` of ``item``."""
    if most == 0:
        return Chain(literal("["), SPACE, literal("]"))
    another = Chain(literal(","), SPACE, item, SPACE)
    more = times(another, max(0, least - 1), None if most is None else most - 1)
    full = Chain(item, SPACE, more, literal("]"))
    return Chain(literal("["), SPACE, full if least else Choice(CharacterSet("]"), full))


def member(key: Expression, value: Expression) -> Expression:
    """``key`` and ``value`` in an object."""
    return Chain(key, SPACE, literal(":"), SPACE, value, SPACE)


def object_of(members: Expression) -> Expression:
    """An object with these ``members``, commas included."""
    return Chain(literal("{"), SPACE, members, literal("}"))


def map_of(value: Expression) -> Expression:
    """An object with any keys and values of this kind."""
    one = member(STRING, value)
    more = repeat(Chain(literal(","), SPACE, one))
    return Chain(literal("{"), SPACE, Choice(CharacterSet("}"), Chain(one, more, literal("}"))))


def _value() -> Reference:
    value = Reference()
    value.target = Choice(STRING, NUMBER, BOOLEAN, NULL, array_of(value), map_of(value))
    return value


VALUE = _value()
OBJECT = map_of(VALUE)


def document(value: Expression) -> Expression:
    """A whole text with one value."""
    return Chain(SPACE, value, SPACE)
