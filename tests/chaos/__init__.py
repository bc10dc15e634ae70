"""Simulated faults: a whole gateway on a virtual clock and virtual sockets. See README.md."""
