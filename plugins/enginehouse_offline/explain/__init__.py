"""``enginehouse explain route`` and ``swap``: explain decisions without a running gateway."""
