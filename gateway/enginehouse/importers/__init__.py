"""Configurations of other programs, turned into ours."""
