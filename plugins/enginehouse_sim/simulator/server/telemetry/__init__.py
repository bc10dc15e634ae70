"""What the server reports about itself: Prometheus metrics and Llumnix's instance status."""
