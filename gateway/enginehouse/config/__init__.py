"""Configuration: its schema, how it is read, and errors that name file, key and remedy."""
