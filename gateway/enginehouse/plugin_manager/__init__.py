"""Finds plugins at start and keeps the types that they register."""
