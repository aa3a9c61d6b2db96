"""Diagnosis of a message's status: facts from brokers and consumers, and conclusions from them."""
