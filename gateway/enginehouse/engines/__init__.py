"""Engines: launching, supervising, probing and stopping them.

Read ``managed_engines`` first: it has every ``host``, which connects its engines with the queue of its requests.
The ``engine`` of a replica alone keeps its state, from its files to its end, and carries out the orders of the queue; a
run is one life of its process. Its ``next_launch`` has files, GPUs and a place, its ``measured_facts`` what engines
have shown.
``launches`` places, launches and records the engines of a host, and ``gpus`` knows which of them has which GPU. The
``left_engines`` of another gateway are found by the ``state_file``, whose ownership says which gateway may act.
``guards`` check what drivers, launchers and processes answer.

``probing`` asks every backend for its health and models, also those that others have launched. ``model_servers`` are
servers elsewhere that load models themselves, ``remote_queues`` the queues of others that have a limit.
"""
