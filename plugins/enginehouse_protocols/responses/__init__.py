"""OpenAI's Responses: ``/v1/responses``.

::

    protocol          the paths
    request           a request as a chat
    answer            a chat's answer as a response
    native            the stream of an engine that speaks the protocol itself
    stored            responses that later requests continue
    engine_responses  which engine has which of the responses that engines store
"""
