"""Decides whether a request is sent again, or to a second replica at once. Pure."""
