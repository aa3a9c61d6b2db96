"""Request-reply over messages."""
