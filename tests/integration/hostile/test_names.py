"""Names that lead out of a folder, in every field of every request: no file gets such a name.

RocketMQ's CVE-2019-17572: the automatic creation of a topic `../../x` made folders anywhere.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from kourou.errors import Code
from kourou.model.names import check_topic
from kourou.protocol.request import Answerer
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.remoting import HeaderType, RemotingCommand, encode_command
from kourou_rigs.attacked import LAST, Attacked
from kourou_rigs.hostile import NAMES, NAMES_IN_BODIES, OVERLONG, fields_with

SPECS = [
    spec
    for spec in REQUESTS.values()
    if Answerer.BROKER in spec.answered_by and spec.remoting and spec.name != "UPDATE_BROKER_CONFIG"
]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.fault
async def test_no_name_of_any_request_becomes_a_path(attacked: Attacked, tmp_path: Path) -> None:
    assert (await attacked.send()).code == Code.SUCCESS
    around = set(tmp_path.parent.iterdir())
    codes: set[int] = set()
    for spec in SPECS:
        said = [
            attacked.say(spec.code, body.encode(), **fields_with(spec, name))
            for name in NAMES
            for body in (
                "x",
                *(one.format(msgspec.json.encode(name).decode()) for one in NAMES_IN_BODIES),
            )
        ]
        for reply in await asyncio.gather(*said):
            assert len(reply.remark or "") < 12_000
            codes.add(reply.code)
    assert Code.SYSTEM_ERROR in codes
    await attacked.serves()
    control = attacked.view.control
    for name in (*control.topics.table, *(f"%RETRY%{group}" for group in control.groups.table)):
        check_topic(name)
    for folder in (tmp_path / "store" / "consumequeue").iterdir():
        check_topic(folder.name)
    assert not {name for name in files(tmp_path) if "outside" in name}
    assert {name for name in files(tmp_path) if "/" not in name} == {"store"}
    assert set(tmp_path.parent.iterdir()) == around


@pytest.mark.fault
@pytest.mark.parametrize("name", OVERLONG)
@pytest.mark.parametrize("kind", [0, 1])
async def test_bytes_that_only_a_lenient_decoder_reads_close_the_connection(
    attacked: Attacked, name: bytes, kind: int
) -> None:
    fields = {"a": "p", "b": "N" * len(name), "c": "TBW102", "d": "1", "e": "0", "f": "0"}
    command = RemotingCommand(
        310, opaque=LAST, ext_fields={**fields, "g": "1", "h": "0"}, header_type=HeaderType(kind)
    )
    sent = encode_command(command).replace(b"N" * len(name), name)
    assert await attacked.answers(sent) == []
    await attacked.serves()
