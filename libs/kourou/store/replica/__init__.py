"""What replicas read from and write to a log."""
