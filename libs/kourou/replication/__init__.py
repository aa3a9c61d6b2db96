"""Replication as pure logic, without I/O: leadership, replica progress, and commitment."""
