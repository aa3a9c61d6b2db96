"""The JSON bodies of requests and replies."""
