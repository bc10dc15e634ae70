"""Figures over time, for ``GET /api/series``.

``series_store`` samples what the gateway has counted, as ``amounts``, into a ``bucket_ring`` of seconds and one of
minutes; ``reading`` answers questions.
"""
