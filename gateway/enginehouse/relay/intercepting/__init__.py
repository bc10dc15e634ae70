"""Lets interceptors and guards decide about requests and their answers."""
