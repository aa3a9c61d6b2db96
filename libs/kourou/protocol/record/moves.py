"""The same message as a draft for another queue.

Body, born time and host, flags, failed attempts and keys belong to the message and are kept.
Offset, position, store time and store host belong to one copy; the new copy gets its own.
"""

from __future__ import annotations

from kourou.errors import MessageIllegal
from kourou.model.limits import PROPERTIES_SIZE_BYTES_MAX, TOPIC_LENGTH_MAX
from kourou.model.message import Property
from kourou.protocol import kernel
from kourou.protocol.record.layout import Buffer
from kourou.protocol.record.properties import find_property

Target = tuple[str, int]
Changes = tuple[tuple[bytes, bytes | None], ...]
"""Names and new values of properties, encoded; None removes one."""

_REAL_TOPIC = Property.REAL_TOPIC.encode()
_REAL_QUEUE = Property.REAL_QID.encode()


def moved_draft(
    record: Buffer,
    target: Target,
    changes: Changes = (),
    *,
    cleared: int = 0,
    added: int = 0,
    reconsume_times: int = -1,
    prepared: int = 0,
) -> bytes:
    """The record, or draft, as a draft for the queue `target`, with these changes of its
    properties.

    An existing property keeps its place, new ones are appended. `cleared` and `added` are bits of
    the flags, without those of the hosts; `reconsume_times` replaces its own unless it is negative.
    Raises MessageIllegal for a topic or properties that do not fit.
    """
    topic = target[0].encode()
    if not 0 < len(topic) <= TOPIC_LENGTH_MAX:
        raise MessageIllegal(f"the topic has {len(topic)} bytes; 1 to {TOPIC_LENGTH_MAX} fit")
    moved = kernel.move(
        record, topic, target[1], changes, cleared, added, reconsume_times, prepared
    )
    if moved is None:
        raise MessageIllegal(
            "the properties have no room for those that the broker adds; at most "
            f"{PROPERTIES_SIZE_BYTES_MAX} bytes are allowed"
        )
    return moved


def real_target(properties: bytes) -> Target | None:
    """The queue that a message with these encoded properties was originally sent to.

    None if they do not say, or if that is not a possible queue.
    """
    topic = find_property(properties, _REAL_TOPIC)
    queue = find_property(properties, _REAL_QUEUE)
    if not topic or len(topic) > TOPIC_LENGTH_MAX or queue is None:
        return None
    if not queue.isdigit() or len(queue) > 9:
        return None
    try:
        return topic.decode(), int(queue)
    except UnicodeDecodeError:
        return None
