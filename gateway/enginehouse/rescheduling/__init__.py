"""Decides which live requests move, and when."""
