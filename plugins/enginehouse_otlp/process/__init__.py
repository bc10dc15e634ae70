"""The exporter: a process of its own that makes spans of records and sends them with OpenTelemetry's exporters.

::

    export_loop   the exporter's loop: reads messages, exports, reports
    destinations  the collector or the terminal, as the configuration and OTEL_* variables say
    core_sharing  lets the gateway have the core that both share
    collector_state  logs when the collector goes away
    encoding      spans in OpenTelemetry's protocol; span_batch: as OpenTelemetry's exporters read them
    spans         the spans of one request
    attributes    their attributes; parameters: those of the request's parameters
    engine_answer what an engine says of its answer
    content       prompts and answers, only with telemetry.capture_content; streamed_content puts streams together
    metrics       the gateway's metrics in OpenTelemetry's form
"""
