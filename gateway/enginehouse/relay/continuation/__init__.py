"""Keeps the part of a stream that the client has, and continues the stream at another engine.

Everything here but ``move`` decides only; the exchange and its dispatch carry it out.
"""
