"""Pages that Starlette answers: those of clients, of operators and of engines.

::

    model_list  GET /v1/models
    protocols   what protocols of clients answer themselves
    health      for load balancers
    guarded     guards the pages that need a key, and leads /upstream/MODEL to its page
"""
