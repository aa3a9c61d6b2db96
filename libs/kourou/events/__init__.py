"""The events of all services: what was decided, as immutable values, and streams of them."""
