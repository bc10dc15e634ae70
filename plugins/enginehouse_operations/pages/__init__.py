"""Pages that show operators what the gateway does.

::

    events        GET /api/events
    event_stream  events of the gateway as server-sent events
    logs          GET /api/logs/{backend}, /logs and /logs/stream
    log_reader    several logs, read and followed as one
    history       GET /api/history and /api/history/models
    series        GET /api/series
    usage         GET /api/usage, /v1/usage and /api/audit
    endless       answers without an end
    reading       what pages know of their gateway, and their queries
"""
