"""The relay: moving a request to its engine and the answer back."""
