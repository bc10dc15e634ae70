"""httpx with much patience and without TLS: loading certificates takes 50 ms of the processor, for each client."""

from __future__ import annotations

from functools import partial

import httpx

_LONGEST_ANSWER_S = 120

AsyncClient = partial(httpx.AsyncClient, trust_env=False, verify=False, timeout=_LONGEST_ANSWER_S)
Client = partial(httpx.Client, trust_env=False, verify=False, timeout=_LONGEST_ANSWER_S)
delete = partial(httpx.delete, trust_env=False, verify=False, timeout=_LONGEST_ANSWER_S)
get = partial(httpx.get, trust_env=False, verify=False, timeout=_LONGEST_ANSWER_S)
post = partial(httpx.post, trust_env=False, verify=False, timeout=_LONGEST_ANSWER_S)
stream = partial(httpx.stream, trust_env=False, verify=False, timeout=_LONGEST_ANSWER_S)
