"""What is installed: the list of plugins, their check, and the search for others."""
