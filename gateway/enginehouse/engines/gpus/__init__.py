"""The GPUs of this machine: what they have free, and which engines get which."""
