"""Prefill and decode in different processes: over the side channel, an engine asks another one for blocks."""
