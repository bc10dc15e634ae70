"""The simulated engine: a vLLM-like scheduler and KV cache, and a server in front of them.

Its rooms in reading order: ``domain``, ``steps``, ``model``, ``kv``, ``scheduler``, ``core``, ``server``, ``serve``,
``replay``. Each imports only rooms named before it.
"""
