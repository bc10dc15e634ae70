"""Backends and their replicas: live state, health, load figures, and the immutable snapshot that decisions read.

Other packages call ``fleet`` only.
"""
