"""Consumption of each queue in order."""
