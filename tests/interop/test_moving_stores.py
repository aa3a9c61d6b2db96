"""A store of ours goes on under RocketMQ's broker, and one of RocketMQ's under ours.

RocketMQ's client leaves messages of every kind with the first server: plain and in a batch, waiting
for their time, prepared and never resolved, given back, dead; and finds them at the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.interop import servers

from kourou.service.local_cluster import HOST

TRIES = {
    # nobody of the group is there while the servers change places
    "transactionCheckMax": "100",
    "transactionTimeOut": "3000",
}


@contextmanager
def serving(name: str, root: Path, folder: Path, store: Path) -> Iterator[str]:
    """The name server's address of that server, whose broker works on `store`."""
    settings = {
        **TRIES,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    if name == "kourou":
        with servers.kourou_cluster(folder, settings) as cluster:
            yield servers.tcp_address(cluster.namesrv)
    else:
        with servers.rocketmq_cluster(root, folder, settings) as port:
            yield f"{HOST}:{port}"


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("kourou", "rocketmq"), ("rocketmq", "kourou")])
def test_a_store_goes_on_under_the_other_broker(
    run_java: Callable[[str, str], None], root: Path, tmp_path: Path, first: str, second: str
) -> None:
    store = tmp_path / "store"
    with serving(first, root, tmp_path / "first", store) as address:
        run_java(address, "leave")
    with serving(second, root, tmp_path / "second", store) as address:
        run_java(address, "find")


@pytest.mark.slow
def test_rocketmq_broker_serves_from_our_name_server(
    run_java: Callable[[str, str], None], root: Path, tmp_path: Path
) -> None:
    with (
        servers.kourou_cluster(tmp_path / "ours", brokers=0) as cluster,
        servers.rocketmq_broker(root, tmp_path / "theirs", servers.tcp_address(cluster.namesrv)),
    ):
        address = servers.tcp_address(cluster.namesrv)
        run_java(address, "sync,push,created-by-sending,topics,broker-figures,key-values")
