"""Test rigs: fake peers, failing disks, simulated networks, fault injection, third-party servers.

Tests, benchmarks and page generators of a checkout use them; no wheel contains them.
"""
