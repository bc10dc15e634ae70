"""Offloading ahead of time: decides which requests move to host memory, and when they move and return."""
