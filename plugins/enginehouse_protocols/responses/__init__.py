"""OpenAI's Responses: ``/v1/responses``.

::

    protocol   the path
    request    a request as a chat
    answer     a chat's answer as a response, whole
    stream     a chat's events as those of a response
    native     the stream of an engine that speaks the protocol itself
    stored     responses that later requests continue
    engine_responses  which engine has which of the responses that engines store
"""
