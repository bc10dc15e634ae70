"""Telemetry: the gateway's records and reports of its work.

::

    record            the tokens of an answer
    request_facts     what is known of a request that has ended
    answer_meter      counts an answer while it passes
    tracer            decides which requests are traced
    trace_context     reads the trace of a client, and writes the one for engines
    metric_list       all metrics, with their labels and meanings
    counters          counters and histograms of finished requests
    decisions         the last routes
    observers         notifies observers of events
    record_delivery   brings the records of ended requests to observers
    event_stream      events and snapshots for operators' browsers
    logs              the gateway's own log
    log_context       the request that the event loop works for
    redaction         masks secrets in lines
    access_log        one line for each request
    log_ring          the last lines of one log, the gateway's or an engine's
    log_reader        several logs, read and followed as one
"""
