"""The HTTP interface: ``doors`` receive requests, ``pages`` answer those that no engine serves."""
