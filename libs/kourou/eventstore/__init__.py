"""eventstore."""
