"""Which settings a replica takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_ha_replica import app
from kourou_ha_replica.config import ReplicaSettings


def replica(**given: object) -> ReplicaSettings:
    found = {"store_root": Path("/nowhere"), "namesrv_addr": "127.0.0.1:9876", **given}
    return ReplicaSettings(**found)  # type: ignore[arg-type]  # a shorthand


@pytest.mark.feature("F128")
def test_without_a_word_it_is_the_first_follower() -> None:
    settings = replica()
    assert (settings.broker_id, settings.broker_role, settings.is_replica) == (1, "SLAVE", True)


@pytest.mark.parametrize(
    ("written", "dialled"),
    [
        ("10.0.0.1:20912", "10.0.0.1:20912"),
        ("10.0.0.1:10912", "10.0.0.1:20912"),  # what stands in a broker.conf of RocketMQ's
        ("leader:41234", "leader:41234"),
        ("[::1]:10912", "[::1]:20912"),
    ],
)
def test_where_the_leader_meets_followers(written: str, dialled: str) -> None:
    settings = replica(ha_master_address=written, namesrv_addr=None)
    assert settings.leader_endpoint == dialled


def test_a_follower_that_could_never_find_its_leader_is_refused() -> None:
    with pytest.raises(ConfigError, match="the address of the leader is unknown"):
        replica(namesrv_addr=None)


@pytest.mark.parametrize(
    "wrong",
    [
        *("brokerRole=SYNC_MASTER", "brokerId=0", "brokerId=64", "haMasterAddress=10.0.0.1:port"),
        "dLegerSelfId=n0",  # of a group that was not switched on
    ],
)
def test_what_it_cannot_be_is_refused_where_settings_are_read(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["-p", "-n", "127.0.0.1:9876", "--set", wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kourou ha-replica: ")
    assert len(err.splitlines()) == 1
