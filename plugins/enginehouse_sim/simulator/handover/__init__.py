"""Prefill and decode in different processes: the side channel over which one engine learns what another one keeps."""
