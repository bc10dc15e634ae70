"""Structured output: JSON and JSON Schema as pushdown automata over characters, and the tokens that they allow."""
