"""The KV cache: blocks and block tables, prefix caching, and transfers to and from other memory."""
