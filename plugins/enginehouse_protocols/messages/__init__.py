"""Anthropic's Messages: ``/v1/messages`` and ``/v1/messages/count_tokens``.

::

    protocol   the paths, errors in Anthropic's form, and the stream of an engine that speaks the protocol itself
    request    a request as a chat
    answer     a chat's answer as a message
"""
