"""A public kit for tests of applications: clocks, disks and brokers that a test controls.

Production code does not import this package.
"""
