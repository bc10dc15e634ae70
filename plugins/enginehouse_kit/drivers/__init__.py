"""Base classes and helpers for drivers."""
