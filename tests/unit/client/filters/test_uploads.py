"""Which brokers have the filters that a consumer brings along."""

from __future__ import annotations

import asyncio
import getpass

import pytest

from kourou import Client, Filter
from kourou.client.filters.uploads import FilterUploads, Uploaded, author
from kourou.model.limits import FILTER_AUTHOR_LENGTH_MAX
from kourou.protocol.messages.filter_server import PutFilter
from kourou_rigs.wire_broker import Cut

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


def puts(broker) -> list[PutFilter]:
    return [request for request in broker.seen if isinstance(request, PutFilter)]


async def test_queues_that_are_ready_at_once_upload_once(broker, session, uploads):
    known = await session.io.run(session.routes.refresh("T"))

    async def all_at_once():
        await asyncio.gather(*(uploads.ready(known, "broker-a", "late") for _ in range(8)))

    await session.io.run(all_at_once())
    assert len(puts(broker)) == 1


async def test_a_broker_that_is_away_gets_it_later(cluster, broker, session, uploads):
    known = await session.io.run(session.routes.refresh("T"))

    def cut(_request):
        raise Cut

    broker.intercept = cut
    await session.io.run(uploads.put(known, ["late"]))
    assert uploads.at("broker-a", "late") is None
    broker.intercept = None
    await session.io.run(uploads.ready(known, "broker-a", "late"))
    assert uploads.at("broker-a", "late") == Uploaded(1, 1)


async def test_without_a_leader_nobody_is_asked(broker, session, uploads):
    known = await session.io.run(session.routes.refresh("T"))
    await session.io.run(uploads.ready(known, "nobody", "late"))
    assert puts(broker) == []


def test_only_what_we_have_is_uploaded_again(uploads):
    assert uploads.forget("broker-a", "late") is True
    uploads.want(Filter.named("stored"))
    assert uploads.forget("broker-a", "stored") is False
    assert uploads.forget("broker-a", "unheard of") is False


@pytest.mark.parametrize(
    ("active", "said"),
    [
        (None, "as version 1, but no version is running, so consumption waits; enable it with"),
        (7, "as version 1, but version 7 is running; enable it with"),
    ],
)
async def test_a_version_that_does_not_run_is_said(broker, session, uploads, caplog, active, said):
    broker.filters.enable_at_once = False
    broker.filters.active["g", "late"] = active
    known = await session.io.run(session.routes.refresh("T"))
    await session.io.run(uploads.put(known, ["late"]))
    assert said in caplog.text


async def test_a_version_in_quarantine_is_said_with_its_reason(broker, session, uploads, caplog):
    put = broker.filters.put

    def in_quarantine(request, body):
        answer = put(request, body)
        return type(answer)(
            version=answer.version, active=None, filters_version=1, quarantined="three strikes"
        )

    broker.filters.put = in_quarantine
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
