"""Stored messages, byte for byte, alone and in batches."""
