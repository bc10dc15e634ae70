from __future__ import annotations

import io
import wave
from typing import Any

import httpx
import pytest

from enginehouse.testing.engines import SimEngine
from tests.support import plain_httpx as http


def speak(engine: SimEngine, **body: Any) -> httpx.Response:
    asked = {"model": "tiny", "voice": "alloy", "input": "the boiler needs coal", **body}
    return http.post(f"{engine.url}/v1/audio/speech", json=asked)


def test_speech_is_a_wave_file_with_a_tone_for_each_token(engine: SimEngine) -> None:
    answer = speak(engine)
    assert answer.headers["content-type"] == "audio/wav"
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        assert file.getnframes() == 5 * 0.08 * 24_000  # "boiler" is two tokens
        assert set(file.readframes(9600)) > {0}


def test_speech_depends_on_the_text_and_on_the_speed(engine: SimEngine) -> None:
    sound = speak(engine, response_format="pcm").content
    assert speak(engine, response_format="pcm").content == sound
    assert speak(engine, response_format="pcm", input="the kettle needs coal").content != sound
    assert len(speak(engine, response_format="pcm", speed=2).content) == len(sound) / 2


@pytest.mark.parametrize("body", [{"response_format": "mp3"}, {"speed": 9}, {"stream_format": "sse"}, {"input": ""}])
def test_speech_that_cannot_be_made_is_refused(engine: SimEngine, body: dict[str, Any]) -> None:
    assert speak(engine, **body).status_code == 400
