"""The runtime of a broker in any role: effect executors, listeners, admin pages, lifecycle.

services/broker and services/ha-replica are thin layers over it, because a follower must be able to
become a leader.
"""
