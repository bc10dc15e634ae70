"""The HTTP surface: two doors, OpenAI's endpoints, operations, errors."""
