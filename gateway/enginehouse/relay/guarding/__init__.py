"""Lets guards decide about requests and their answers."""
