"""Requests in progress, as operators, the watchdog and the counters see them."""
