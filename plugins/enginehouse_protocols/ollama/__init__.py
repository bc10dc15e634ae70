"""Ollama's endpoints: ``/api/chat``, ``/api/generate``, ``/api/embed``, ``/api/embeddings`` and its lists of models.

::

    protocol   the paths, the pages and errors in Ollama's form
    chat       a chat or a prompt, as OpenAI's chat or completion
    answer     answers, and lines of streams
    embed      embeddings
    pages      what models there are
    durations  how long a model is to be kept
"""
