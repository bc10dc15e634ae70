"""Offloading ahead of time: which requests move to host memory, when, and when they return."""
