"""A public kit for tests: clocks, disks and brokers that do what a test tells them.

Production code imports nothing from here.
"""
