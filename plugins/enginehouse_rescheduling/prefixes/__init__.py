"""Which parts of prompts instances have read before."""
