"""What docs/http.md tells to type works as it stands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kourou.testing.cluster import Cluster
from kourou.testing.console import ConsoleHere

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_its_lines_work_one_after_the_other(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    outputs = []
    with Cluster(tmp_path) as cluster, ConsoleHere(cluster) as console:
        cluster.create_topic("orders")
        for block in blocks:
            done = subprocess.run(
                [
                    "bash",
                    "-euo",
                    "pipefail",
                    "-c",
                    block.replace("127.0.0.1:8080", console.address),
                ],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (block, done.stdout, done.stderr)
            outputs.append(done.stdout)
    whole = "\n".join(outputs)
    for word in ('"SEND_OK"', '"replayed":true', '"state":"committed"', '"state":"acked"'):
        assert word in whole
