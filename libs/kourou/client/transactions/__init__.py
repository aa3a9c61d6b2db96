"""Transactional messages: half messages, commits, rollbacks and check-backs."""
