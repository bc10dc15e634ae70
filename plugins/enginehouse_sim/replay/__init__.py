"""A trace of requests, run through the simulated engine on a virtual clock."""
