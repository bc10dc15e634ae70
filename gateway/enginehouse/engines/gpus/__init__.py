"""The GPUs of this machine: their free memory, and their assignment to engines."""
