"""Telemetry: the gateway's records and reports of its work.

::

    counted_answers     reads the tokens that engines say they counted
    answer_meter        counts an answer while it passes
    tracer              decides which requests are traced
    trace_context       reads the trace of a client, and writes the one for engines
    metric_list         the metrics of what is rare, with their labels and meanings
    counters            counters and histograms of finished requests
    counter_transfer    moves what a worker has counted to the owner
    model_totals        what plugins that keep figures read
    swap_reports        counts and logs swaps
    observers           notifies observers of events
    record_delivery     brings the records of ended requests to observers
    plugin_failures     what plugins raise, as errors and in the log
    checked_plugin      whether what plugins return is what their interfaces declare
    plugin_times        how long calls of plugins take
    loop_load           how busy the event loop is
    logs                the gateway's own log
    log_context         the request that the event loop works for
    log_ring            the last lines of one log, the gateway's or an engine's
"""
