"""Engines: launching, supervising, probing and stopping them.

Read ``managed_engines`` first: it has every ``host``, which connects an ``engine_pool`` with the queue of its requests.
The pool has a ``supervisor`` for each engine. An ``engine_start`` brings one up: by its ``engine_setup``, which makes
launch lines and speaks with it, and by the ``host_launcher``, which places, launches and records the engines of a host.
``adoption`` takes over those that run already, with the ``state_file``; ``ownership`` says which gateway may act.

``probing`` asks every backend for its health, models and figures, also those that others have launched. ``remote`` are
servers elsewhere that load models themselves, ``remote_queues`` the queues of those that have a limit.
"""
