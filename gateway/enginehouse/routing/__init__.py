"""Routing: from a request to the replica that serves it. Pure decisions on a snapshot of the fleet.

Read ``router`` first. ``body`` reads and rewrites request bodies, ``models_to_try`` resolves aliases and fallbacks,
``decision_plugins`` runs the filters and the strategy. ``refusals`` and ``recorder`` make errors and
explanations for people.
"""
