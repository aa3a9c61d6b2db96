"""The console as a process: it starts, answers, reads its tokens again, and ends in peace."""

from __future__ import annotations

import signal
from pathlib import Path

from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou_rigs.console import HttpClient

TOKEN = '[[token]]\nname = "{name}"\nright = "write"\ntoken = "{name}-0123456789abcdef"\n'


def test_its_life_beside_a_cluster(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(TOKEN.format(name="ann"), encoding="utf-8")
    told = ClusterSettings(console={"tokenFile": str(tokens)})
    with LocalCluster(tmp_path / "cluster", told) as cluster:
        assert cluster.console is not None
        address = str(cluster.console.ready["http"]).removeprefix("http://")
        ann, bob = (HttpClient(address, f"{name}-0123456789abcdef") for name in ("ann", "bob"))
        assert ann.get("/readyz").status == 200
        sent = ann.post("/v1/topics/orders/messages", body=b"hello")
        assert sent.status == 200
        assert bob.get("/v1/me").status == 401
        tokens.write_text(TOKEN.format(name="bob"), encoding="utf-8")
        cluster.console.signal(signal.SIGHUP)
        while bob.get("/v1/me").status == 401:  # the file's change alone is seen within a second
            pass
        assert ann.get("/v1/me").status == 401
        pages = HttpClient(str(cluster.console.ready["admin"]).removeprefix("http://"))
        assert 'kourou_gateway_requests_total{node_type="console"' in pages.get("/metrics").text
        assert cluster.stop()["console"] == 0
