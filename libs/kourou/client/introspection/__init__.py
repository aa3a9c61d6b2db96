"""What a client replies when operators ask about its consumers."""
