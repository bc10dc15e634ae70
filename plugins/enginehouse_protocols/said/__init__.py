"""What an engine's answer says, between dialects: read once, written in each.

::

    said         the vocabulary
    calls        which pieces belong to which call of a tool
    engine_chat  reads the chats and completions of engines
    blocks       puts what is said at once into blocks, one after the other

No dialect reads an engine's JSON.
"""
