"""Takes a job to an engine, and to another one if the first fails it."""
