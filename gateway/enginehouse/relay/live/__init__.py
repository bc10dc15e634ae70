"""Requests in progress, as operators, the sweep over all of them and the counters see them."""
