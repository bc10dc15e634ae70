"""Several serving processes: one owner of engines and sockets, and its workers, which relay requests.

::

    forks               what workers need before any thread runs, and how their processes begin
    fork_server         a process that has forked before any thread, and forks the workers
    shared_memory       the memory that all of them share, and the turns of their waiting rooms in it
    channel             calls between the owner and one worker, over a unix socket
    messages            what they tell each other beside calls of each other's parts
    worker_pool         the owner's side: starts, replaces and ends the workers, and shows what each does
    worker_request      a live request of a worker, as the owner shows it
    publisher           sends workers the configuration and the state of backends
    worker_server       runs a worker: a server on the sockets that the owner has opened
    worker              the worker's side: connections, router and relay
    tickets             a worker's tickets at the owner's queues: both sides
    pages               pages of the owner on a worker's connection: both sides
    reports             what a worker tells of its requests, and how the owner adds it up
"""
