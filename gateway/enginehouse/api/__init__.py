"""The HTTP surface: ``doors`` let requests in, ``pages`` answer those that no engine serves."""
