"""Live migration: requests move between simulated engines with their KV cache, on Llumnix's commands."""
