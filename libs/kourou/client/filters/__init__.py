"""Subscription expressions and Python filters."""
