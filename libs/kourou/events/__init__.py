"""The events of all services, as immutable values, and streams of them."""
