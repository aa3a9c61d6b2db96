"""The name server: brokers register with it, and clients request routes from it."""
