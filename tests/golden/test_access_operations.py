"""Every operation of the console's HTTP API, called by one caller of each kind: who is let through.

The copy is tests/golden/access/operations.txt. A person compares it with the rights in
docs/security.md; after an intended change:
`pytest tests/golden/test_access_operations.py --rewrite`. A new operation needs a line in `samples`
if it has required fields. A broker, a name server and the console are real.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden.conftest import GoldenCopies
from tests.integration.test_console_users import Secured, populate, secret_of

from kourou_console.config import SignInMode
from kourou_console.operation import Operation
from kourou_console.operations import OPERATIONS
from kourou_rigs.console import ConsoleHere, HttpAnswer

COPY = Path(__file__).parent / "access" / "operations.txt"
WIDTH = 58
HEAD = """\
# Every operation of the console's HTTP API with signIn=users: who is let through.
#
#   ok   handled, or not refused for want of a right: what it is about may not exist
#   part handled, without what the answer names as refused: brokers gave no message
#   401  no valid credentials
#   403  refused by the brokers, or by the console, which has asked them before
#
# anon: without credentials; wrong: a wrong secret of one of the users; then users with one role
# each, on everything. Leases and redrives are those of the caller: others' are not found. Lists
# have only what the user has a right to. A redrive is begun for who sees the group, and brokers
# decide about each of its messages. No setting of a name server can be changed.
#
"""
ROLES = {
    "reader": "reader",
    "writer": "writer",
    "oper": "operator",
    "admin": "administrator",
}
REFUSED = (401, 403)
COLUMNS = ("anon", "wrong", *ROLES)
NO_RIGHT = "no right to"
REACHED = {200, 201, 202, 204, 404, 409, 410}
"""What the administrator gets. Any other status would mean that the request was not decided."""

ELSE_REACHED = {
    "promote": {400},  # there is no other replica
    "try_filter": {503},  # there is no filter server
    "update_name_servers": {403},  # no setting can be changed
}
PATH = {
    "topic": "orders",
    "group": "g",
    "broker": "broker-a",
    "queue": "0",
    "name": "late",
    "client": "c",
    "table": "t",
    "namespace": "n",
    "key": "k",
    "lease": "l",
    "kind": "topic",
}
FILTER = "def match(message, context):\n    return message.tag == 'late'\n"


@dataclass(frozen=True)
class Staged:
    """What requests are about: a message, a half message, and the event that made a topic."""

    message: str
    transaction: str
    event: int


def samples(staged: Staged) -> dict[str, dict[str, Any]]:
    """What operations need besides PATH: query and body, or another path."""
    of_topic = {"query": {"topic": "orders"}}
    of_dead = {"query": {"group": "dead"}}
    undo = {"json": {"offset": staged.event, "force": True}}
    leasing = {"path": {"group": "leasing"}}
    empty: dict[str, Any] = {"json": {}}
    return {
        "send_message": {"body": b"x"},
        "send_batch": {"json": {"messages": [{"body": "x"}]}},
        "begin_transaction": {"body": b"x"},
        "receive_messages": {**leasing, "json": {"begin": "first"}},
        "leave_group": leasing,
        "extend_lease": empty,
        "retry_lease": empty,
        "dead_letter_lease": empty,
        "ack_leases": {"json": {"leases": ["l"]}},
        "find_messages": {"query": {"topic": "orders", "latest": "true"}},
        "get_message": of_topic,
        "get_message_body": of_topic,
        "get_message_trace": of_topic,
        "explain_message": of_topic,
        "consume_directly": {"json": {"topic": "orders", "message_id": staged.message}},
        "tail_topic": {"query": {"from": "begin"}},
        "list_dead_letters": of_dead,
        "export_dead_letters": of_dead,
        "begin_redrive": {"json": {"group": "dead", "dry_run": True}},
        "discard_dead_letters": {"json": {"group": "dead"}},
        "update_broker_config": {"json": {"settings": {"fileReservedTime": "72"}}},
        "broker_write_permission": {"json": {"writable": True}},
        "clean_broker": {"json": {"what": "expired_queues"}},
        "broker_counter": {"query": {"item": "TOPIC_PUT_NUMS", "key": "orders"}},
        "transfer_leader": empty,
        "promote": {"json": {"broker_id": 7}},
        "put_topic": {"json": {"read_queues": 1, "write_queues": 1}},
        "put_topic_permission": {"json": {"permission": "rw"}},
        "put_topic_order": {"json": {"queues": {"broker-a": 1}}},
        "topic_allocation": {"query": {"member": "c"}},
        "put_group": {"json": {"attempts": 7}},
        "reset_offsets": {"json": {"to": "begin"}},
        "skip_accumulation": empty,
        "clone_offsets": {"json": {"from_group": "h"}},
        "put_filter": {"json": {"source": FILTER}},
        "enable_filter": empty,
        "disable_filter": empty,
        "roll_back_filter": empty,
        "set_filter_policy": {"json": {"policy": "skip"}},
        "try_filter": {"json": {"topic": "orders", "source": FILTER, "count": 1}},
        "put_quota": {"json": {"publish_bytes": 10**12}},
        "try_policies": empty,
        "undo": undo,
        "broker_undo": undo,
        "update_name_servers": {"json": {"settings": {"kvConfigPath": "kv"}}},
        "put_name_server_value": {"json": {"value": "v"}},
        "probe": {"json": {"topic": "orders", "count": 1}},
    }


class Walk:
    """The console of a cluster with users. What a request changed is made again before the next."""

    def __init__(self, console: ConsoleHere) -> None:
        self._console = console
        #: Requests that are not valid, so that nothing was decided about them.
        self.unreached: list[str] = []
        self._staged = self._stage()
        self._make_dead_letter()
        later = {"body": "x", "delay_level": 18}
        self._done("POST", "/v1/topics/orders/messages", json=later)

    def _stage(self) -> Staged:
        """Make what requests are about, if it is not there."""
        self._done("PUT", "/v1/topics/orders", json={"read_queues": 1, "write_queues": 1})
        for group in ("g", "h"):
            self._done("PUT", f"/v1/groups/{group}", json={"attempts": 16})
        self._done("PUT", "/v1/filters/g/late", json={"source": FILTER})
        self._done("PUT", "/v1/topics/undone", json={"read_queues": 1, "write_queues": 1})
        sent = self._done("POST", "/v1/topics/orders/messages", body=b"x")
        half = self._done("POST", "/v1/topics/orders/transactions", body=b"x")
        newest = {"broker": "broker-a", "kind": "topic", "name": "undone", "count": 1}
        events: list[Any] = []
        while not (events and events[0]["type"] == "TopicPut"):  # the event database follows
            events = self._done("GET", "/v1/history", query=newest)["items"]
        return Staged(sent["offset_message_id"], half["transaction_id"], events[0]["offset"])

    def _make_dead_letter(self) -> None:
        """Make a dead letter of the group `dead`, which consumes the topic `letters`."""
        self._done("PUT", "/v1/topics/letters", json={"read_queues": 1, "write_queues": 1})
        self._done("POST", "/v1/topics/letters/messages", body=b"x")
        wanted = {"begin": "first", "wait_ms": 30_000}
        path = "/v1/groups/dead/topics/letters/leases"
        [leased] = self._done("POST", path, json=wanted)["items"]
        self._done("POST", f"/v1/leases/{leased['lease']}/dead-letter", json={})

    def _done(self, method: str, path: str, **options: Any) -> Any:
        headers = _basic("admin", secret_of("admin"))
        answer = self._console.request(method, path, headers=headers, **options)
        assert answer.status < 300, (method, path, answer.text)
        return answer.json

    def lines(self) -> Iterator[str]:
        """A line for each operation: what each caller gets."""
        yield " " * WIDTH + " ".join(f"{name:>6}" for name in COLUMNS)
        for number, one in enumerate(OPERATIONS):
            marks = [self._mark(one, column, number) for column in COLUMNS]
            name = f"{one.method} {one.path}"
            yield f"{name:<{WIDTH}}" + " ".join(f"{mark:>6}" for mark in marks)

    def _mark(self, operation: Operation, column: str, number: int) -> str:
        if operation.name == "discard_dead_letters" and column in ROLES:
            self._make_dead_letter()
        status, text = self._ask(operation, _headers(column, number))
        if column == "admin" and status not in ELSE_REACHED.get(operation.name, REACHED):
            self.unreached.append(f"{operation.name}: {status} {text}")
        if operation.method != "GET" and status < 300:
            self._staged = self._stage()
        if status in REFUSED:
            return str(status)
        return "part" if _lacks_something(text) else "ok"

    def _ask(self, operation: Operation, headers: Mapping[str, str]) -> tuple[int, str]:
        """Status and text of the answer; 403 also for a stream that ends for want of a right."""
        staged = self._staged
        options = {**samples(staged).get(operation.name, {}), "headers": headers}
        made = {"id": staged.message, "transaction_id": staged.transaction}
        path = operation.path.format_map({**PATH, **made, **options.pop("path", {})})
        if operation.media_type == "text/event-stream":
            with self._console.events(path, **options) as stream:
                if stream.status != 200:
                    return stream.status, ""
                first = next(iter(stream))
                return (first.json["status"] if first.event == "error" else 200), first.data
        answer = self._console.request(operation.method, path, **options)
        if operation.stream and answer.status == 200 and _ends_without_right(answer):
            return 403, answer.text
        return answer.status, answer.text


def _lacks_something(text: str) -> bool:
    """Whether a right to something was missing that the answer would have had."""
    if '"missing":[{' not in text:
        return False
    return any(NO_RIGHT in one["why"] for one in msgspec.json.decode(text)["missing"])


def _ends_without_right(answer: HttpAnswer) -> bool:
    last = msgspec.json.decode(answer.body.splitlines()[-1])
    return not last["end"] and NO_RIGHT in last["error"]


def _headers(column: str, number: int) -> Mapping[str, str]:
    """The credentials of a caller. A wrong secret comes from another place each time.

    Else it would be delayed: see kourou_console.http.sign_in.
    """
    if column == "anon":
        return {}
    if column == "wrong":
        user = list(ROLES)[number % len(ROLES)]
        place = {"X-Forwarded-For": f"10.{number}.0.1"}
        return {**_basic(user, "not-the-secret"), **place}
    return _basic(column, secret_of(column))


def _basic(user: str, secret: str) -> dict[str, str]:
    text = base64.b64encode(f"{user}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """A console that tells places apart by X-Forwarded-For, and users with one role each."""
    made = Secured(tmp_path)
    try:
        asyncio.run(_populate(made))
        with ConsoleHere(
            None,
            namesrv_addr=made.cluster.address,
            sign_in=SignInMode.USERS,
            curve_key_file=made.pair("console"),
            curve_server_key=made.servers,
            trusted_proxies_text="127.0.0.1",
        ) as console:
            yield Walk(console)
            assert not console.failures
    finally:
        made.cluster.stop()


async def _populate(made: Secured) -> None:
    await populate(made)
    async with made.client("ops") as mq:
        for name, role in ROLES.items():
            await mq.admin.users.create(name, secret=secret_of(name), roles=[role])


def test_each_operation_is_for_whom_it_is(walk: Walk, golden_copies: GoldenCopies) -> None:
    text = HEAD + "\n".join(walk.lines()) + "\n"
    assert walk.unreached == []
    golden_copies.check(COPY, text)
