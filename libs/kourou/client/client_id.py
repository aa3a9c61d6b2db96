"""The name under which a client registers: `ip@instanceName[@unitName]` (fact sheet §3.3).

Members of a group are told apart by this name, and queues are shared out by its order. RocketMQ's
default instance name `DEFAULT` therefore becomes `pid#number`, or two clients in one process, or
two processes on one machine, would be one member.
"""

from __future__ import annotations

from kourou.model.names import check_client_id

DEFAULT_INSTANCE = "DEFAULT"


def client_id(
    client_ip: str, instance_name: str, *, pid: int, number: int, unit_name: str = ""
) -> str:
    """The id of a client; `number` tells apart the clients of one process (F212, F284, F285)."""
    instance = f"{pid}#{number}" if instance_name == DEFAULT_INSTANCE else instance_name
    parts = [client_ip, instance]
    if unit_name:
        parts.append(unit_name)
    return check_client_id("@".join(parts))
