"""What operators see: logs, metrics, request ids."""
