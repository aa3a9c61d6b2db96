"""Opening a store after a crash or a clean stop."""
