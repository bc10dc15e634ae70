"""The commands ``enginehouse explain rescheduling`` and ``enginehouse reschedule``."""
