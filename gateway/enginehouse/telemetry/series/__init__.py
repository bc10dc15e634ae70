"""Figures over time: rings of one-second and one-minute buckets, for ``GET /api/series`` and for plugins."""
