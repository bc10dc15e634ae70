"""Relays a request without a stream as one, so that it survives its engine, and gathers the answer."""
