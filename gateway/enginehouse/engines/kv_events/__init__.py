"""Follows the events that engines publish of their prefix caches."""
