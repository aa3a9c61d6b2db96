"""RocketMQ's own Java client with its hook for signatures, at our broker with users.

The real mqadmin makes the topics and the account first; what the client then may and may not is in
java/Secured.java.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop import servers
from tests.interop.mqadmin import Tool

ACCOUNT = "-a secured-writer -s secret-of-the-writer -i DENY -u DENY"
MADE = (
    "updateTopic {at} -t SecuredOrders -r 2 -w 2",
    "updateTopic {at} -t SecuredOthers -r 1 -w 1",
    "updateSubGroup {at} -g secured-group",
    f"updateAclConfig {{at}} {ACCOUNT} -t SecuredOrders=PUB|SUB -g secured-group=SUB",
)


@pytest.mark.timeout(300)
def test_signed_requests_of_the_java_client_are_decided(
    class_path: str, run_java: Callable[..., None], tmp_path: Path
) -> None:
    with servers.secured_cluster(tmp_path / "servers") as cluster:
        namesrv = servers.tcp_address(cluster.namesrv)
        tool = Tool(class_path, tmp_path / "tool", servers.ADMINISTRATOR)
        try:
            at = f"-b {servers.tcp_address(cluster.brokers[0])} -n {namesrv}"
            for command in MADE:
                ended, text = tool.run(command.format(at=at))
                assert ended, command
                assert "success" in text, text
        finally:
            tool.close()
        for client in ("java", "java-binary"):
            run_java(namesrv, "secured-writer,secured-stranger,secured-forbidden", client=client)
