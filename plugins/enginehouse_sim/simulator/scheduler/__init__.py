"""A continuous-batching scheduler with vLLM's semantics. It decides the tokens of each request in each step."""
