"""The engine's side: connections, pools, and the HTTP client made of them."""
