"""What docs/quickstart.md tells to type works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kourou.cli.up import layers_lacking
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quickstart.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_its_lines_for_curl_send_and_consume(
    tmp_path: Path, typed: Callable[[str, str], str]
) -> None:
    [block] = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    with Cluster(tmp_path) as cluster, ConsoleHere(cluster) as console:
        cluster.create_topic("breakfasts")
        sent, leased = (
            msgspec.json.decode(typed(line, console.address)) for line in block.splitlines()
        )
    assert sent["status"] == "SEND_OK"
    [lease] = leased["items"]
    message = lease["message"]
    assert message["id"] == sent["message_id"]
    assert (message["body"], message["tag"], message["keys"]) == (
        '{"id": "A-3", "amount": 2}',
        "paid",
        ["A-3"],
    )


@pytest.mark.feature("F238", "F240", "F242")
def test_its_filter_of_ten_lines_passes_one_of_two_messages(tmp_path: Path) -> None:
    if lacking := layers_lacking():
        pytest.skip(f"needs a kernel layer: {', '.join(lacking)}")
    block = re.search(r"## A filter.*?```python\n(.*?)```\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert block
    program, output = block.groups()
    assert len([line for line in program.splitlines() if line]) == 10
    script = tmp_path / "example.py"
    with LocalCluster(tmp_path / "cluster", ClusterSettings(filter_servers=1)) as cluster:
        script.write_text(program.replace("127.0.0.1:9876", cluster.address))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")
