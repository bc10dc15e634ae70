"""The server's reports about itself: Prometheus metrics and Llumnix's instance status."""
