"""Device memory in blocks, what is known to be in them, and the ways of keys and values in and out."""
