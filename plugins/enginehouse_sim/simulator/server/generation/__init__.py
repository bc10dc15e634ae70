"""From a decoded request to the engine's requests, and from their outputs to answers."""
