"""Has one engine read the prompt of a request, and another one answer it: prefill and decode on different engines.

::

    choosing  which two engines can serve a request together, and which serve none alone
    pairs     one after the other, with ``kv_transfer_params``, or both at once, with a bootstrap address
"""

from __future__ import annotations

from enginehouse import HandOver, Register, hookimpl
from enginehouse_pairs.pairs import Pairs


@hookimpl
def register_hand_overs(register: Register[HandOver]) -> None:
    """Register the pairs."""
    register("pairs", Pairs)
