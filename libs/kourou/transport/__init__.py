"""Hands on the wire: ZeroMQ sockets driven by an event loop. The only home of pyzmq."""
