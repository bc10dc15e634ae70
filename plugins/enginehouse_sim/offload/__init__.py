"""Making room before it runs out: who is moved to host memory, when, and when it comes back."""
