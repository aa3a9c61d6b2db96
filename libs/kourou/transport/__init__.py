"""Network transports: ZeroMQ and RocketMQ remoting sockets on an event loop.

Only this package imports pyzmq.
"""
