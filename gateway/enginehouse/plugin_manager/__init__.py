"""Plugins: finding them at start, and what they registered."""
