"""The fleet: backends and replicas, their live state, and the immutable snapshot that routing reads."""
