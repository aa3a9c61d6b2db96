"""The ports that services listen on by default, and how they follow from each other."""

from __future__ import annotations

NAMESRV_PORT = 9876
NAMESRV_ADMIN_PORT = 18_080
BROKER_PORT = 10_911
BROKER_ADMIN_PORT = 18_081
BROKER_PORT_STEP = 20
"""The distance between the ports of brokers on one machine; their admin ports are consecutive."""
FILTER_SERVER_ADMIN_PORT = 18_181
SPARK_ETL_ADMIN_PORT = 18_281
CONSOLE_ADMIN_PORT = 18_380

ZMQ_PORT_SHIFT = 10_000
"""A service's port for ZeroMQ is its port for RocketMQ's protocol plus this."""
