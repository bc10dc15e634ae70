"""Pages that Starlette answers: those of clients, of operators and of engines.

::

    model_list  GET /v1/models
    protocols   what protocols of clients answer themselves
    upstream_root  leads /upstream/MODEL to its page
    health      for load balancers
    operators   guards every page that needs an admin key
"""
