"""HTTP: connections, one request and its response."""
