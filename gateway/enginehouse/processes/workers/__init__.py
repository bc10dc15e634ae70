"""Several serving processes: one owner of engines and sockets, and its workers, which relay requests.

::

    fork_server         a process that has forked before any thread, and forks the workers
    worker_memory       the memory that all of them share
    channel             messages between the owner and one worker, over a unix socket
    messages            what they say to each other
    sent_error          errors of requests on their way
    worker_pool         the owner's side: starts, replaces and ends the workers, and shows what they do
    worker_link         the owner's side of one worker
    worker_request      a live request of a worker, as the owner shows it
    publisher           sends workers the configuration and the state of backends
    desk                tickets of workers at the owner's queues
    pages               pages of the owner on a worker's connection
    worker              the worker's side: connections, router and relay
    worker_channel      the worker's side of the channel
    remote_queue        the owner's queues, as a worker sees them
    room_turns          the waiting rooms of the other workers, as a worker sees them
    reports             what a worker tells of its requests, and how the owner adds it up
    request_events      events and traces of a worker's requests, for observers and the exporter of the owner
"""
