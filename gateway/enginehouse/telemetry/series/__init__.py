"""Figures over time, for ``GET /api/series`` and for plugins.

``series_store`` samples what ``amounts`` counts into a ``bucket_ring`` of seconds and one of minutes; ``reading``
answers questions.
"""
