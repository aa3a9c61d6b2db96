"""Why a message is where it is, as an operation of the API."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.parse import quote

import pytest

from kourou.errors import BadRequest
from kourou_console.api.messages import ExplainParams, explain


@pytest.mark.feature("F265")
async def test_it_is_the_explanation_that_the_client_gives(cluster):
    topic = cluster.create_topic(queues=1)
    async with cluster.async_client("operator") as client:
        gateway = SimpleNamespace(client=client, admin=client.admin)
        sent = await client.send(topic, b"x")
        await client.admin.offsets.commit("till", {sent.queue: 1})
        for text in (sent.message_id, f"{sent.queue!s}@0", sent.offset_message_id):
            result = await explain(gateway, ExplainParams(text, group="till"))
            assert result.groups[0].causes[0].code == "consumed"
        result = await explain(gateway, ExplainParams(f"{sent.queue!s}@9"))
        assert (result.message, result.causes[0].code) == (None, "never_stored")
        with pytest.raises(BadRequest, match="is not a message reference"):
            await explain(gateway, ExplainParams("a\nb"))


def test_over_http_a_place_has_its_slashes_encoded(cluster, console):
    topic = cluster.create_topic(queues=1)
    with cluster.client() as mq:
        sent = mq.send(topic, b"x")
    name = quote(f"{sent.queue!s}@{sent.offset}", safe="")
    answer = console.get(f"/v1/messages/{name}/explain")
    assert (answer.status, answer.json["causes"][0]["code"]) == (200, "nobody_consumes")
    assert answer.json["message"]["topic"] == topic
    refused = console.get(f"/v1/messages/{name}/explain?nobody=1")
    assert refused.status == 400
