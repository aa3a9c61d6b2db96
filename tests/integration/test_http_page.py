"""What docs/http.md tells to type works as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_its_lines_work_one_after_the_other(
    tmp_path: Path, typed: Callable[[str, str], str]
) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    with Cluster(tmp_path) as cluster, ConsoleHere(cluster) as console:
        cluster.create_topic("purchases")
        outputs = [typed(block, console.address) for block in blocks]
    whole = "\n".join(outputs)
    for word in ('"SEND_OK"', '"replayed":true', '"state":"committed"', '"state":"acked"'):
        assert word in whole
