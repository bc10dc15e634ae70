"""Hand-overs: which two engines serve a request, how one reads its prompt, and what is wrong with a stream."""

from __future__ import annotations

from enginehouse.interfaces.hand_overs import GoOn, PairChoice, PrefillEngine
from enginehouse.relay.events.stream_check import BrokenStream, StreamCheck
from enginehouse.relay.events.stream_form import stream_form

__all__ = ["BrokenStream", "GoOn", "PairChoice", "PrefillEngine", "StreamCheck", "stream_form"]
