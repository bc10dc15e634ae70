"""Engines: launching, probing and stopping them."""
