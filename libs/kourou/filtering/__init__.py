"""filtering."""
