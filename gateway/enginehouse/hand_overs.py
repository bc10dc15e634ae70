"""Hand-overs: which two engines serve a request, how one reads its prompt, and what is wrong with a stream."""

from __future__ import annotations

from enginehouse.interfaces.hand_overs import GoOn as GoOn
from enginehouse.interfaces.hand_overs import PairChoice as PairChoice
from enginehouse.interfaces.hand_overs import PrefillEngine as PrefillEngine
from enginehouse.relay.events.stream_check import BrokenStream as BrokenStream
from enginehouse.relay.events.stream_check import StreamCheck as StreamCheck
from enginehouse.relay.events.stream_form import stream_form as stream_form
