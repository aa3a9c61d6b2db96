"""Commands for messages: unknown IDs, and brokers that do not reply."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kourou.cli.admin import messages as message_commands
from kourou.client.admin.messages import MessageNotFound, QueryResults
from kourou.errors import BadRequest, KourouError, Unavailable

HINT = "for a message ID printed by `kourou send`, also give the topic: -t TOPIC"


def client_with(**families: object) -> Any:
    return SimpleNamespace(admin=SimpleNamespace(**families))


@pytest.mark.parametrize("error", [BadRequest("no id"), MessageNotFound("no broker has it")])
def test_an_id_that_is_not_found_may_be_of_the_other_kind(error: KourouError) -> None:
    def by_offset_id(message_id: str) -> object:
        raise error

    client = client_with(messages=SimpleNamespace(by_offset_id=by_offset_id))
    with pytest.raises(type(error)) as raised:
        message_commands.message_by_id(client, "C0A80001")
    assert (raised.value.message, raised.value.hint) == (error.message, HINT)


def test_a_broker_that_does_not_reply_is_reported() -> None:
    some: QueryResults[Any] = QueryResults((), {"broker-b": Unavailable("away")})
    client = client_with(
        messages=SimpleNamespace(by_key=lambda *_, **__: some, trace=lambda *_, **__: some)
    )
    by_key = message_commands.messages_by_key(client, "orders", "k")
    for report in (by_key, message_commands.message_trace(client, "id")):
        assert (report.failed, report.missing) == (True, some.missing)
