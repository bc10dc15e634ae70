"""Clients of OpenAI's SDK for servers at ``url``: without TLS, as ``plain_httpx`` is, and without retries."""

from __future__ import annotations

import openai


def openai_client(url: str, key: str = "client-key") -> openai.OpenAI:
    http = openai.DefaultHttpxClient(trust_env=False, verify=False)
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http)


def async_openai_client(url: str, key: str = "client-key") -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(trust_env=False, verify=False)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http)
