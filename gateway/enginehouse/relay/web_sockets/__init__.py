"""WebSockets between clients and engines."""
