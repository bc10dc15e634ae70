"""Anthropic's Messages: ``/v1/messages`` and ``/v1/messages/count_tokens``.

::

    protocol   the paths, and errors in Anthropic's form
    request    a request as a chat
    answer     a chat's answer as a message, whole
    stream     a chat's events as those of a message
    native     the stream of an engine that speaks the protocol itself
"""
