"""Streams of ``/v1/messages`` and ``/v1/responses``, whose events have types, and what continues them: a chat.

::

    typed_answer      what both have in common
    message_events    Anthropic's events
    response_events   those of OpenAI's Responses
    typed_history     the part of such a stream that its client has
"""
