"""Configurations of other programs, turned into ours. Today there is one: llama-swap's."""
