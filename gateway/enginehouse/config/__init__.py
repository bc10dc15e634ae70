"""The configuration: its schema, its sources, and errors that name file, key and remedy."""
