"""The relay: moving a request to its engine and the answer back.

The parts, from the top down::

    relay, asides
    relayed_request, pick, web_socket_request
                  the kinds of a request: its answer passes, passes elsewhere, or never ends
    request       what is asked, the attempts at engines, and the one end; all live requests
    moves         moves live streams to other engines on purpose
    live          a live request, as others see it
    attempts      takes a job to an engine, and to another one if the first fails it
    jobs          what each kind of request needs of an engine
    context       what all of them share; engine_facts, queue_slot, middleware and web_socket_server serve it
    retries       decides whether a request is sent again, within the budget
    upstream      connections to engines
    answers       the answer that a client gets
    response_writer  where answers are written; engine_memory counts what is held of them
    events, heads server-sent events; heads of requests and answers
"""
