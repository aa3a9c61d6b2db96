"""The console: the HTTP gateway, and the web pages that use it."""
