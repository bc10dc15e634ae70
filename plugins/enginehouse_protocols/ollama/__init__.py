"""Ollama's endpoints: ``/api/chat``, ``/api/generate``, ``/api/embed``, ``/api/embeddings`` and its lists of models.

::

    protocol   the paths, the lists of models, and errors in Ollama's form
    request    a chat, a prompt or texts to embed, as OpenAI's requests
    answer     answers, and lines of streams
    native     answers of engines that speak the protocol themselves
"""
