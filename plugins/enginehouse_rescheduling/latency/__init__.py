"""Predicts latencies from measured ones, as Llumnix does."""
