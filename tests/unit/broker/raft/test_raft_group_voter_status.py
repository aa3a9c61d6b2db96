"""What a replica says in its log of the members it waits for before it may vote."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.broker.raft.raft_group import WARN_MS, VoterStatusLog


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
    assert caplog.messages[-1] == "vote-allowed: this replica may vote now"
