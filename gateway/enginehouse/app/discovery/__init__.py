"""Backends that discoverers find join the configuration in force, and leave it again, without a reload."""
