"""REGISTER_MESSAGE_FILTER_CLASS (302): how RocketMQ's old clients upload filters.

State: soft. Those clients upload again with their heartbeats.
"""

from __future__ import annotations

import hashlib
import re

from kourou.errors import BadRequest, Code, KourouError
from kourou.model.filter import check_filter_name
from kourou.model.limits import FILTER_AUTHOR_LENGTH_MAX, FILTER_SOURCE_BYTES_MAX, FILTERS_MAX
from kourou.protocol.messages.filter_server import PutFilter, RegisterMessageFilterClass
from kourou.protocol.record.layout import masked_crc
from kourou.runtime.core import Received, Reply
from kourou_filter_server.inputs import BrokerAnswered
from kourou_filter_server.turn import Turn, trouble_of

JAVA_TEXT = re.compile(
    rb"^[ \t]*(?:package\s+[\w.]+\s*;|import\s+(?:static\s+)?(?:javax?|com|org|net)\.[\w.*]+\s*;"
    rb"|(?:public|final|abstract)\s+(?:\w+\s+)?(?:class|interface)\s+\w+)",
    re.MULTILINE,
)
"""Text that only Java sources contain; it scans long white space only once."""

NO_JAVA = "this is Java source; filters must be Python"


class Uploading:
    """Uploads of old clients."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._named: dict[tuple[str, str], str] = {}

    def filter_of(self, group: str, topic: str) -> str:
        """The filter that a group uploaded for a topic; "" if there is none."""
        return self._named.get((group, topic), "")

    def upload(self, received: Received, request: RegisterMessageFilterClass) -> None:
        """Forward an upload to the broker, and its reply to the client."""
        source = b"".join(received.body)
        try:
            _check(request, source)
        except KourouError as error:
            self._turn.do(Reply(received.to, error.wire_code, str(error)))
            return

        def answered(answer: BrokerAnswered) -> None:
            trouble = trouble_of(answer)
            if trouble:
                code = Code.SERVICE_NOT_AVAILABLE if answer.error is not None else answer.code
                self._turn.do(Reply(received.to, code, trouble))
                return
            key = (request.consumer_group, request.topic)
            if len(self._named) >= 4 * FILTERS_MAX and key not in self._named:
                del self._named[next(iter(self._named))]
            self._named[key] = request.class_name
            self._turn.do(Reply(received.to))

        host, port = received.to.peer.address
        self._turn.ask(
            PutFilter(
                consumer_group=request.consumer_group,
                name=request.class_name,
                sha256=hashlib.sha256(source).hexdigest(),
                author=f"{host}:{port}"[:FILTER_AUTHOR_LENGTH_MAX],
                note=f"uploaded by a client, for {request.topic}",
            ),
            answered,
            body=(source,),
            to=received.to,
        )


def _check(request: RegisterMessageFilterClass, source: bytes) -> None:
    check_filter_name(request.class_name)
    if not 0 < len(source) <= FILTER_SOURCE_BYTES_MAX:
        raise BadRequest(
            f"the source of a filter must have 1 to {FILTER_SOURCE_BYTES_MAX} bytes, "
            f"this one has {len(source)}"
        )
    if masked_crc(source) != request.class_crc & 0x7FFF_FFFF:
        raise BadRequest("the source arrived damaged: its CRC-32 does not match")
    if JAVA_TEXT.search(source):
        raise BadRequest(NO_JAVA, hint="upload a function match(message, context)")
