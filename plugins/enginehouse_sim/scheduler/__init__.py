"""A continuous-batching scheduler with vLLM's semantics: which request gets how many tokens in which step."""
