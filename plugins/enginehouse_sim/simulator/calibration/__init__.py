"""Measures engines over HTTP: fits profiles to them, and compares replays with them."""
