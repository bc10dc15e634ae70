"""Server-sent events: how they are framed, and what makes a stream of them whole."""
