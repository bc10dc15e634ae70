"""Which live requests should move, and when."""
