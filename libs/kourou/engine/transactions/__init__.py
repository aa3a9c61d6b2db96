"""Transactions and batch transactions."""
