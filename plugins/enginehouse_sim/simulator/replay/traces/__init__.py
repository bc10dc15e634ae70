"""Traces: read from files of several formats, and made."""
