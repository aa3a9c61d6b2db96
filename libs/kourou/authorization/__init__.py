"""Decides requests by a table of users, and notes what was refused.

The rules are in kourou.access.
"""
