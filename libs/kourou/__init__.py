"""Kourou: a message broker suite that stores and speaks what Apache RocketMQ stores and speaks."""

__version__ = "0.1.0"
