"""How the read model's tables came to be as they are."""
