"""The core of an engine: scheduler, cache, model and time, put together; without a clock of its own and without I/O."""
