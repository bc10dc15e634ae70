"""Replay: a trace of requests through the engine on a virtual clock."""
