"""httpx without TLS: loading certificates takes 50 ms of the processor, for each client."""

from __future__ import annotations

from functools import partial

import httpx

AsyncClient = partial(httpx.AsyncClient, trust_env=False, verify=False)
Client = partial(httpx.Client, trust_env=False, verify=False)
delete = partial(httpx.delete, trust_env=False, verify=False)
get = partial(httpx.get, trust_env=False, verify=False)
post = partial(httpx.post, trust_env=False, verify=False)
stream = partial(httpx.stream, trust_env=False, verify=False)
