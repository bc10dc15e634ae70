"""The messages of Llumnix's gRPC commands to engines, with its names and numbers."""
