"""The extension points: one module each, importing the nouns and nothing of the runtime.

A plugin class may declare ``Config``, a ``msgspec.Struct``; its parameters are then decoded strictly and the class is
called with the one decoded object. Without ``Config`` it takes no parameters and is called with no argument.
"""
