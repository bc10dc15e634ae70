"""Traces: read from files of several formats, or generated."""
