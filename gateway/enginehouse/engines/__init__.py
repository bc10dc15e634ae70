"""Engines: launching, supervising, probing and stopping them.

Read ``managed_engines`` first: it has every ``host``, which connects an ``engine_pool`` with the queue of its requests.
The pool has an ``engine`` for each replica, which alone keeps its state, from its files to its end. The
``host_launcher`` places, launches and records the engines of a host.
``adoption`` takes over those that run already, with the ``state_file``; ``ownership`` says which gateway may act.

``probing`` asks every backend for its health, models and figures, also those that others have launched. ``remote`` are
servers elsewhere that load models themselves, ``remote_queues`` the queues of those that have a limit.
"""
