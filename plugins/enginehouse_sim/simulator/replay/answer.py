"""The record of one answer, and counts of the gaps between outputs."""

from __future__ import annotations


def count_gap(gaps: dict[int, int], seconds: float, count: int) -> None:
    """Add ``count`` gaps of so many ``seconds`` to ``gaps``, by microseconds."""
    micros = seconds * 1e6
    whole = int(micros)
    rest = micros - whole
    if rest > 0.5 or (rest == 0.5 and whole % 2):  # what round() does, which takes a hundred times as long
        whole += 1
    gaps[whole] = gaps.get(whole, 0) + count


class AnswerRecord:
    """One answer of an engine, or all that a client gets; times are in seconds on the virtual clock.

    - ``has_moved``: another engine continues it, and has not made a token yet.
    - ``is_ahead``: it computes tokens for another request, and no figure counts it.
    - ``is_read``: another engine has computed the prompt.
    - ``is_unread``: the gateway does not read on, so the gaps between tokens reach no client.
    """

    def __init__(self, arrival: float, input_length: int, *, is_ahead: bool = False) -> None:
        self.arrival = arrival
        self.input_length = input_length
        self.has_moved = False
        self.is_ahead = is_ahead
        self.is_read = self.is_unread = False
        self.first_token = -1.0
        self.last_token = arrival
        self.output_tokens = 0
        self.cached_tokens = 0

    def has_first_token(self) -> None:
        """The engine has made the first token."""

    def has_last_token(self) -> None:
        """The engine has made the last token."""
