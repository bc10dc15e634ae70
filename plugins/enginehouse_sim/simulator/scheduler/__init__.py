"""A continuous-batching scheduler with vLLM's semantics: how many tokens each request gets in each step."""
