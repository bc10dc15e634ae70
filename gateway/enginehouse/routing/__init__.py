"""From a request to the replica that serves it: pure decisions on a snapshot of the fleet.

Read ``router`` first. ``read`` and ``model_name`` are about the body's bytes, ``attempts`` about aliases and fallbacks,
``sieve`` about filters, ``chooser`` about the strategy, ``refusals`` and ``explain`` about what to tell people.
"""
