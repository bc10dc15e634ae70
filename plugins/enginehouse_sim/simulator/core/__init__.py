"""The engine core: scheduler, KV cache, model and time put together, without a real clock and without I/O."""
