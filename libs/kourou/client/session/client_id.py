"""The client ID under which a client registers: `ip@instanceName[@unitName]`.

The client ID identifies the consumers of a group, and queues are allocated in its order. RocketMQ's
default instance name `DEFAULT` is therefore replaced by `pid#number`. Otherwise two clients in one
process, or two processes on one machine, would be the same consumer.
"""

from __future__ import annotations

from kourou.model.names import check_client_id

DEFAULT_INSTANCE = "DEFAULT"


def client_id(
    client_ip: str, instance_name: str, *, pid: int, number: int, unit_name: str = ""
) -> str:
    """Return the ID of a client; `number` distinguishes the clients of one process."""
    instance = f"{pid}#{number}" if instance_name == DEFAULT_INSTANCE else instance_name
    parts = [client_ip, instance]
    if unit_name:
        parts.append(unit_name)
    return check_client_id("@".join(parts))
