"""Pages that show operators what the gateway does, and act on it.

::

    operations    status, live requests, decisions and explanations
    live_view     the state that they and the events show
    lifecycle     loads and unloads models, takes backends out of service, reloads
    events        GET /api/events and /api/events/past, and the last events, in a file
    event_stream  events of the gateway by their names, and as server-sent events
    logs          GET /api/logs/{backend}, /logs and /logs/stream
    history       GET /api/history and /api/history/models
    series        GET /api/series, and the figures over time that it shows
    usage         GET /api/usage, /v1/usage, /v1/limits and /api/audit
    endless       answers without an end
    reading       what pages know of their gateway, their queries and bodies
"""
