"""Keeps the part of a stream that the client has, and continues the stream at another engine.

Everything here decides only; the exchange and its dispatch carry it out.

::

    rules           which streams are continued, and how often
    restrictions    which requests' streams can be
    added_fields    cuts the fields that a driver asked for from the client's events
    chunks          reads the events of chats and completions
    progress        the text and the tokens that have passed, also for another process
    kept_stream     keeps the events, and reads them when they are needed
    stream_history  what another engine is asked for, and what is left for the client
    typed_history   the same for streams whose events have types
    asking          asks the driver for the request that continues
    translator      turns its answer into the client's events
    reading_ahead   bounds the text that a backend reads for moves
"""
