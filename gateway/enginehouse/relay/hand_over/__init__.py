"""One engine reads the prompt of a request, and hands its KV cache over to another one, which answers."""
