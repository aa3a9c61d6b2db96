"""What a member's disk says of its standing, and what operators read of it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.broker.raft.raft_group import WARN_MS, VoterStatusLog, boot_of
from kourou.store.replica.vote_file import StoredVote


def store(end: int) -> Any:
    return SimpleNamespace(log_range=lambda: (0, end), flushed=end)


def test_a_member_whose_disk_is_new_or_lost_joins_unless_an_operator_says_otherwise() -> None:
    assert boot_of(store(0), [], None, born_anyway=False).joining
    assert boot_of(store(100), [], None, born_anyway=False).joining
    assert boot_of(store(0), [], StoredVote(3, "n1"), born_anyway=False).joining
    assert not boot_of(store(0), [], StoredVote(3, "n1", lived=False), born_anyway=False).joining
    assert not boot_of(store(0), [], None, born_anyway=True).joining
    known = boot_of(store(100), [(2, 50)], StoredVote(3, "n1"), born_anyway=False)
    assert (known.epoch, known.voted_for, known.joining, known.lived) == (3, "n1", False, True)


def test_who_waits_for_a_vote_says_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    lines = VoterStatusLog(0)
    member: Any = SimpleNamespace(leader="", joining=SimpleNamespace(awaited=lambda: ["n1", "n2"]))
    caplog.set_level(logging.INFO)
    lines.look(member, WARN_MS - 1)
    assert not caplog.messages
    for now_ms in (WARN_MS, WARN_MS + 1):
        lines.look(member, now_ms)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("n1, n2")
    lines.written(joining=True)
    lines.written(joining=False)
    assert caplog.messages[-1] == "this replica may vote now"
