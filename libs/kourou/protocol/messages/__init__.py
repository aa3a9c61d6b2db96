"""The headers of all requests and replies."""
