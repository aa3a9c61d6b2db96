"""Which brokers have the filters that a consumer brings along."""

from __future__ import annotations

import asyncio
import getpass

import pytest

from kourou import Client, Filter
from kourou.client.filters.uploads import FilterUploads, Uploaded, author
from kourou.model.filter import FilterAction
from kourou.model.limits import FILTER_AUTHOR_LENGTH_MAX
from kourou.protocol.messages.filter_server import PutFilter
from kourou_rigs.wire_faults import Cut

LATE = Filter("def match(message, context):\n    return True\n", name="late", note="first")


@pytest.fixture
async def session(cluster, broker):
    async with Client("127.0.0.1:9876", dial=cluster.dial) as mq:
        yield mq._client.session


@pytest.fixture
def uploads(session):
    uploads = FilterUploads("g", session.client_id, session.connections, 1_000)
    uploads.want(LATE)
    return uploads


async def test_queues_that_are_ready_at_once_upload_once(broker, session, uploads):
    known = await session.io.run(session.routes.refresh("T"))

    async def all_at_once():
        await asyncio.gather(*(uploads.ready(known, "broker-a", "late") for _ in range(8)))

    await session.io.run(all_at_once())
    assert len(broker.requests(PutFilter)) == 1


async def test_a_broker_that_is_away_gets_it_later(cluster, broker, session, uploads):
    known = await session.io.run(session.routes.refresh("T"))
    broker.faults[PutFilter] = [Cut]
    await session.io.run(uploads.put(known, ["late"]))
    assert uploads.at("broker-a", "late") is None
    await session.io.run(uploads.ready(known, "broker-a", "late"))
    assert uploads.at("broker-a", "late") == Uploaded(1, 1)


async def test_without_a_leader_nobody_is_asked(broker, session, uploads):
    known = await session.io.run(session.routes.refresh("T"))
    await session.io.run(uploads.ready(known, "nobody", "late"))
    assert broker.requests(PutFilter) == []


def test_only_what_we_have_is_uploaded_again(uploads):
    assert uploads.forget("broker-a", "late") is True
    uploads.want(Filter.named("stored"))
    assert uploads.forget("broker-a", "stored") is False
    assert uploads.forget("broker-a", "unheard of") is False


async def test_a_version_beside_the_one_that_runs_is_said(broker, session, uploads, caplog):
    broker.put_filter(LATE)
    broker.put_filter(Filter(LATE.source + "# other\n", name="late"))
    known = await session.io.run(session.routes.refresh("T"))
    await session.io.run(uploads.put(known, ["late"]))
    assert "as version 1, but version 2 is running; enable it with" in caplog.text


async def test_a_version_in_quarantine_is_said_with_its_reason(broker, session, uploads, caplog):
    broker.put_filter(LATE)
    broker.change_filter("late", FilterAction.QUARANTINE, version=1, reason="three strikes")
    known = await session.io.run(session.routes.refresh("T"))
    await session.io.run(uploads.put(known, ["late"]))
    assert "that version is quarantined (three strikes); enable it with" in caplog.text


def test_the_author_is_the_user_and_the_client(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    assert author("10.0.0.1@7#1") == "ann 10.0.0.1@7#1"
    assert len(author("x" * 500)) == FILTER_AUTHOR_LENGTH_MAX

    def nobody():
        raise KeyError("uid 4711")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert author("10.0.0.1\n@7") == "10.0.0.1@7"
