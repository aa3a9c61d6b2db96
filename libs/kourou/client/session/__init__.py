"""The I/O side of a client: connections, name servers, routes, heartbeats."""
