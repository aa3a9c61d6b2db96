"""Dead letters are grouped by cause and sent again; no part of it is shown as the whole."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kourou.client.admin.dead_letters import DeadLettersApi
from kourou.errors import Unavailable
from kourou.model.topic import MessageQueue
from kourou.testing.cluster import Cluster, unique_name
from kourou_console import dead_letters
from kourou_console.dead_letters import JobState, RedriveOutcome, Redrives, Selection
from kourou_rigs.console import ConsoleHere


@pytest.fixture
def cluster(suite: Any) -> Cluster:
    """Its cluster."""
    return suite.cluster


@pytest.fixture
def console(suite: Any) -> ConsoleHere:
    """Its console."""
    return suite.console


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=1)


@pytest.fixture
def group(cluster: Cluster, topic: str) -> str:
    """A group with five dead letters of two causes."""
    name = unique_name("group")
    with cluster.client(name) as mq, mq.subscribe(topic) as messages:
        for number in range(5):
            tag = "odd" if number % 2 else "even"
            mq.send(topic, f"{number}", tag=tag, queue=MessageQueue(topic, "broker-a", 0))
        for number, message in zip(range(5), messages, strict=False):
            reason = "broken" if number == 4 else f"no order {number}17 in A-{number}"
            message.dead_letter(reason)
    return name


def ended(console: ConsoleHere, number: str, **query: str) -> Any:
    """The job when it has ended."""
    while True:
        job = console.get(f"/v1/dead-letters/redrives/{number}", query=query).json
        if job["state"] != JobState.RUNNING:
            return job


def redrive(console: ConsoleHere, **body: Any) -> Any:
    answer = console.post("/v1/dead-letters/redrives", json=body)
    assert answer.status == 202, answer.text
    return answer.json


@pytest.mark.feature("F365")
def test_letters_are_counted_by_cause(console, group, topic):
    found = console.get("/v1/dead-letters", query={"group": group, "count": "2"}).json
    causes = [(one["cause"], one["count"], one["origin_topic"]) for one in found["causes"]]
    assert causes == [("no order # in #", 4, topic), ("broken", 1, topic)]
    assert (found["total"], found["truncated"], found["causes_truncated"]) == (5, True, False)
    assert [one["message"]["body"] for one in found["items"]] == ["0", "1"]
    query = {"group": group, "cursor": found["cursor"]}
    rest = console.get("/v1/dead-letters", query=query).json
    assert [one["message"]["body"] for one in rest["items"]] == ["2", "3", "4"]
    assert rest["cursor"] is None
    groups = console.get("/v1/dead-letters/groups").json["items"]
    assert {"group": group, "waiting": 5} in groups
    nobody = console.get("/v1/dead-letters", query={"group": "nobody"}).json
    assert (nobody["items"], nobody["total"]) == ([], 0)


@pytest.mark.feature("F365")
def test_a_selection_is_sent_again(cluster, console, group, topic):
    body = {"group": group, "filter": {"cause": "no order # in #", "tag": ["odd"]}}
    tried = ended(console, redrive(console, **body, dry_run=True)["id"])
    assert (tried["state"], tried["selected"], tried["sent"]) == ("done", 2, 0)
    assert {one["state"] for one in tried["outcomes"]} == {RedriveOutcome.WOULD_SEND}
    job = ended(console, redrive(console, **body, rate_per_s=1000)["id"])
    assert (job["state"], job["sent"], job["failed"], job["left"]) == ("done", 2, 0, 0)
    with cluster.client(group) as mq, mq.subscribe(topic) as messages:
        got = [message.body for _, message in zip(range(2), messages, strict=False)]
    assert sorted(got) == [b"1", b"3"]


def test_the_mark_moves_over_what_was_sent_in_a_row(console, group):
    dead_letters = console.get("/v1/dead-letters", query={"group": group}).json["items"]
    ids = [dead_letters[number]["id"] for number in (0, 1, 3)]
    job = ended(
        console, redrive(console, group=group, ids=ids, rate_per_s=1000, deal_with=True)["id"]
    )
    assert (job["state"], job["sent"]) == ("done", 3)
    left = console.get("/v1/dead-letters", query={"group": group}).json
    assert [one["id"] for one in left["items"]] == [one["id"] for one in dead_letters[2:]]


def test_what_is_not_there_leaves_a_job_failed(console, group):
    job = ended(console, redrive(console, group=group, ids=["nonsense"], dry_run=True)["id"])
    assert (job["state"], job["failed"]) == ("failed", 1)
    assert job["outcomes"][0]["state"] == "not_found"


def test_a_job_takes_so_many_bytes_and_says_that_it_was_cut(console, group, monkeypatch):
    monkeypatch.setattr(dead_letters, "REDRIVE_BYTES_MAX", 1)
    for dry_run in (True, False):
        job = ended(console, redrive(console, group=group, dry_run=dry_run)["id"])
        assert (job["state"], job["selected"], job["sent"]) == ("failed", 1, int(not dry_run))
        assert "more than 1 dead letters" in job["error"]


def test_what_cannot_be_sent_is_told_of_each(console, group, monkeypatch):
    sent = DeadLettersApi._send

    async def failing(self: Any, of: str, dead_letter: Any) -> None:
        if dead_letter.message.raw_body == b"2":
            raise Unavailable("nobody takes it")
        await sent(self, of, dead_letter)

    monkeypatch.setattr(DeadLettersApi, "_send", failing)
    job = ended(console, redrive(console, group=group, rate_per_s=1000, deal_with=True)["id"])
    assert (job["state"], job["sent"], job["failed"]) == ("failed", 4, 1)
    assert [one["error"] for one in job["outcomes"]] == [None, None, "nobody takes it", None, None]
    left = console.get("/v1/dead-letters", query={"group": group}).json
    assert left["items"][0]["message"]["body"] == "2"


def test_a_stopped_job_says_what_it_did_not_send(console, group):
    first = redrive(console, group=group, rate_per_s=1)
    second = console.post("/v1/dead-letters/redrives", json={"group": group})
    assert second.status == 409
    stopped = console.delete(f"/v1/dead-letters/redrives/{first['id']}").json
    assert (stopped["state"], stopped["sent"] + stopped["left"]) in (("stopped", 5), ("stopped", 0))
    assert console.get("/v1/dead-letters/redrives/no-such").status == 404
    assert first["id"] in [
        one["id"] for one in console.get("/v1/dead-letters/redrives").json["items"]
    ]


def test_a_job_that_is_stopped_before_it_began_is_stopped(console, group):
    """Its task never ran, so it is `stop` that says so; and the group may have another job."""

    async def begun_and_stopped() -> Any:
        jobs = Redrives(console.gateway)
        how = {"rate_per_s": 1, "dry_run": False, "deal_with": False}
        job = jobs.begin(group, None, Selection(), **how)
        await asyncio.gather(jobs.stop(job), jobs.stop(job))
        await jobs.stop(jobs.begin(group, None, Selection(), **how))
        await jobs.close()
        return job

    job = console.run(begun_and_stopped())
    assert (job.state, job.ended_ms is not None, job.results) == (JobState.STOPPED, True, [])


def test_two_gateways_at_once_lose_nothing_and_send_nothing_twice(cluster, console, group, topic):
    with ConsoleHere(cluster) as other:
        both = [(one, redrive(one, group=group, rate_per_s=5)["id"]) for one in (console, other)]
        jobs = [ended(one, number) for one, number in both]
        assert sorted(one["state"] for one in jobs) == ["done", "failed"]
        [done] = [one for one in jobs if one["state"] == "done"]
        [failed] = [one for one in jobs if one["state"] == "failed"]
        assert (done["sent"], failed["sent"], failed["left"]) == (5, 0, 0)
        assert "another client holds the lock of %DLQ%" in failed["error"]
        with cluster.client(group) as mq, mq.subscribe(topic) as messages:
            got = [message.body for _, message in zip(range(5), messages, strict=False)]
        assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]
        for one in (other, console):  # the locks were given back
            assert ended(one, redrive(one, group=group, rate_per_s=1000)["id"])["sent"] == 5


def test_what_is_sent_is_what_waits_under_the_lock(cluster, console, group, monkeypatch):
    """A second gateway whose lock is granted only after the first one's job sends nothing more."""
    lock, met, first = DeadLettersApi.lock, [], []

    async def late(self: Any, of: str) -> list[MessageQueue]:
        if not met:  # the second gateway asks, and meanwhile the first one does all of it
            met.append(of)
            await asyncio.to_thread(whole_job)
        return await lock(self, of)

    def whole_job() -> None:
        number = redrive(console, group=group, rate_per_s=1000, deal_with=True)["id"]
        first.append(ended(console, number))

    monkeypatch.setattr(DeadLettersApi, "lock", late)
    with ConsoleHere(cluster) as other:
        second = ended(other, redrive(other, group=group, deal_with=True)["id"])
    assert (first[0]["state"], first[0]["sent"]) == ("done", 5)
    assert (second["state"], second["sent"]) == ("done", 0)


def test_a_lock_that_is_lost_ends_the_job(console, group, monkeypatch):
    """As if its gateway had stood still, and another one had taken it meanwhile."""
    lock, asked = DeadLettersApi.lock, []

    async def once(self: Any, of: str) -> list[MessageQueue]:
        asked.append(of)
        held = await lock(self, of)
        return held if len(asked) == 1 else [MessageQueue(f"%DLQ%{of}", "broker-a", 0)]

    monkeypatch.setattr(DeadLettersApi, "lock", once)
    monkeypatch.setattr(dead_letters, "REFRESH_S", 0)
    job = ended(console, redrive(console, group=group, rate_per_s=5)["id"])
    assert job["state"] == "failed"
    assert job["sent"] < 5
    assert "another client holds the lock" in job["error"]


def test_where_the_lock_lapsed_both_send_and_nothing_is_lost(
    cluster, console, group, topic, monkeypatch
):
    """As if each had been stopped for a minute: the locks are never refused."""

    async def granted(_: Any, of: str) -> list[MessageQueue]:
        return []

    monkeypatch.setattr(DeadLettersApi, "lock", granted)
    with ConsoleHere(cluster) as other:
        both = [
            (one, redrive(one, group=group, rate_per_s=100, deal_with=True)["id"])
            for one in (console, other)
        ]
        jobs = [ended(one, number) for one, number in both]
    # The second one finds what the first one's mark has left, if that was quicker.
    assert [one["state"] for one in jobs] == ["done", "done"]
    sent = sum(one["sent"] for one in jobs)
    assert 5 <= sent <= 10
    with cluster.client(group) as mq, mq.subscribe(topic) as messages:
        got = [message.body for _, message in zip(range(sent), messages, strict=False)]
    assert set(got) == {b"0", b"1", b"2", b"3", b"4"}
    assert all(got.count(one) <= 2 for one in got)
    assert console.get("/v1/dead-letters", query={"group": group}).json["total"] == 0


@pytest.fixture
def spread(cluster: Cluster, topic: str) -> str:
    """A group with two dead letters at broker-a and one at broker-b."""
    name = unique_name("group")
    with cluster.client(name) as mq, mq.subscribe(topic) as messages:
        for number, broker in enumerate("aab"):
            mq.send(topic, f"{number}", queue=MessageQueue(topic, f"broker-{broker}", 0))
        for _, message in zip(range(3), messages, strict=False):
            message.dead_letter("broken")
    return name


def test_a_silent_broker_hides_no_letters_of_others(console, spread, silence):
    query = {"group": spread, "count": "1"}
    away = {"what": f"%DLQ%{spread}/broker-b/0", "why": "it swaps"}
    with silence("broker-b"):
        found = console.get("/v1/dead-letters", query=query).json
        rest = console.get("/v1/dead-letters", query=query | {"cursor": found["cursor"]}).json
        groups = console.get("/v1/dead-letters/groups").json
        exported = console.get("/v1/dead-letters/export", query={"group": spread})
        job = ended(console, redrive(console, group=spread, dry_run=True)["id"])
    assert [one["message"]["body"] for one in found["items"] + rest["items"]] == ["0", "1"]
    assert (found["total"], found["causes"][0]["count"], found["missing"]) == (2, 2, [away])
    assert {"group": spread, "waiting": 2} in groups["items"]
    assert away in groups["missing"]
    last = msgspec.json.decode(exported.body.splitlines()[-1])
    assert (last["end"], last["count"], "it swaps" in last["error"]) == (False, 2, True)
    assert (job["state"], job["selected"], "it swaps" in job["error"]) == ("failed", 2, True)


def test_a_broker_that_leaves_the_route_holds_no_mark_of_others_back(console, spread, monkeypatch):
    """Or what was sent from the others would be listed still, and sent again by the next job."""
    ask, sent = DeadLettersApi._dead_leaders, DeadLettersApi._send
    gone: list[str] = []

    async def leaving(self: Any, of: str, dead_letter: Any) -> None:
        await sent(self, of, dead_letter)
        gone.append("broker-a")

    async def leaders(self: Any, of: str) -> dict[str, str]:
        return {name: at for name, at in (await ask(self, of)).items() if name not in gone}

    with monkeypatch.context() as patched:
        patched.setattr(DeadLettersApi, "_send", leaving)
        patched.setattr(DeadLettersApi, "_dead_leaders", leaders)
        job = ended(console, redrive(console, group=spread, rate_per_s=1000, deal_with=True)["id"])
        discarded = console.post("/v1/dead-letters/discards", json={"group": spread})
    assert (job["state"], job["sent"], "broker-a" in job["error"]) == ("failed", 3, True)
    assert (discarded.status, "broker-a" in discarded.json["detail"]) == (503, True)
    left = console.get("/v1/dead-letters", query={"group": spread}).json["items"]
    assert [one["message"]["body"] for one in left] == ["0", "1"]


def test_a_cursor_leaves_out_no_letter_of_a_broker_that_was_silent(console, spread, silence):
    query = {"group": spread, "count": "1"}
    with silence("broker-b"):
        first = console.get("/v1/dead-letters", query=query).json
    query |= {"count": "9", "cursor": first["cursor"]}
    rest = console.get("/v1/dead-letters", query=query).json
    assert [one["message"]["body"] for one in first["items"]] == ["0"]
    assert sorted(one["message"]["body"] for one in rest["items"]) == ["1", "2"]


def test_an_export_says_that_it_is_whole(console, group):
    answer = console.get("/v1/dead-letters/export", query={"group": group})
    lines = [msgspec.json.decode(line) for line in answer.body.splitlines()]
    assert lines[-1] == {"end": True, "count": 5, "error": None}
    assert [line["message"]["body"] for line in lines[:-1]] == list("01234")


def test_a_group_that_there_is_not_is_refused_at_once(console, cluster):
    before = console.get("/v1/dead-letters/redrives").json["total"]
    for dry_run in (True, False):
        body = {"group": unique_name("group"), "dry_run": dry_run}
        answer = console.post("/v1/dead-letters/redrives", json=body)
        assert (answer.status, "not found" in answer.json["detail"]) == (404, True)
    assert console.get("/v1/dead-letters/redrives").json["total"] == before
    without_letters = unique_name("group")
    assert console.put(f"/v1/groups/{without_letters}", json={}).status == 200
    assert ended(console, redrive(console, group=without_letters)["id"])["state"] == "done"


def test_a_filter_that_is_none_is_refused_at_once(console, group):
    body = {"group": group, "filter": {"sql": "a ="}}
    assert console.post("/v1/dead-letters/redrives", json=body).status == 400
    assert Selection().wanted == "*"
    body = {"group": group, "filter": {"colour": "red"}}
    assert "colour" in console.post("/v1/dead-letters/redrives", json=body).json["detail"]
