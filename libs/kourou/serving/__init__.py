"""What a broker is made of, whatever its role: an engine with hands, ears, pages and a life.

services/broker and services/ha-replica are thin over it, since a follower must be able to lead.
"""
