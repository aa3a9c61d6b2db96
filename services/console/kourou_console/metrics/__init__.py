"""Metrics of the brokers over the last hour, and the alarms raised from them."""
