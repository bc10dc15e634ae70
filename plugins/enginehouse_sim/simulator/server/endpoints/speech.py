"""``POST /v1/audio/speech``: text as a melody, one tone for each generated token."""

from __future__ import annotations

import io
import math
import struct
import wave
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.model.text import encode
from enginehouse_sim.simulator.server.endpoints.common import new_id
from enginehouse_sim.simulator.server.generation.work import EncodedPrompt, Work
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation

_RATE = 24_000
_TONE_S = 0.08
_LOWEST_HZ = 220.0
_SEMITONES = 25
_LOUDNESS = 0.2


class SpeechBody(msgspec.Struct):
    """The fields that the endpoint reads. It ignores all others. ``voice`` changes nothing."""

    model: str
    input: str
    voice: str = ""
    response_format: str = "wav"
    speed: Annotated[float, msgspec.Meta(ge=0.25, le=4)] = 1.0
    stream_format: Literal["audio", "sse"] = "audio"


async def speech(simulation: Simulation, call: Call) -> None:
    """Answer 16-bit sound at 24 kHz, with as many tones as the text has tokens."""
    body = call.decode(SpeechBody)
    if body.response_format not in ("wav", "pcm"):
        raise InvalidRequest(f"There is no encoder for {body.response_format!r} here: ask for wav or pcm")
    if body.stream_format != "audio":
        raise InvalidRequest("Speech is not streamed as events here: leave 'stream_format' out")
    prompts = [EncodedPrompt(encode(body.input))]
    max_tokens = simulation.max_tokens(prompts, max(1, len(prompts[0].token_ids)))
    lora = simulation.lora(body.model)
    work = Work(id=new_id("speech", call), prompts=prompts, max_tokens=max_tokens, ignore_eos=True, lora=lora)
    with simulation.generator.run(work) as run:
        [answer] = await run.finished()
        sound = _sound(answer.token_ids, body.speed)
    if body.response_format == "pcm":
        await call.answer(sound, b"audio/pcm")
    else:
        await call.answer(_file(sound), b"audio/wav")


def _sound(token_ids: Sequence[int], speed: float) -> bytes:
    return b"".join(_tone(token % _SEMITONES, speed) for token in token_ids)


@lru_cache(maxsize=256)
def _tone(semitones: int, speed: float) -> bytes:
    step = 2 * math.pi * _LOWEST_HZ * 2 ** (semitones / 12) / _RATE
    samples = (int(32767 * _LOUDNESS * math.sin(step * number)) for number in range(int(_RATE * _TONE_S / speed)))
    return b"".join(struct.pack("<h", sample) for sample in samples)


def _file(sound: bytes) -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(sound)
    return made.getvalue()
