"""The console: the HTTP gateway, and the web pages that are made of it."""
