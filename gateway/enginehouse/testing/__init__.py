"""The kit for plugin authors."""
