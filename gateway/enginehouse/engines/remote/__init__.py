"""Servers that run elsewhere and load models themselves. A load there is watched and ended like an engine."""
