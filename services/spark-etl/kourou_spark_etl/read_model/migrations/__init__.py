"""The migrations of the read model's tables."""
