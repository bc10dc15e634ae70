"""The nouns: what the house talks about, and no behaviour beyond their own invariants."""
