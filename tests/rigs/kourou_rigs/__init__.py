"""Test rigs: fake peers, failing disks, simulated networks, nemeses, and servers of other projects.

Tests, benchmarks and page generators of a checkout use them; no wheel contains them.
"""
