"""Grammars for answers: JSON and JSON Schema as machines over characters, and the tokens that they allow next."""
