"""Keeps what the client has of a stream, and continues the stream at another engine.

Everything here but ``move`` decides only; the exchange and its dispatch carry it out.
"""
