"""What a coalesced send says of its records, and whether its records agree.

Lives here: the header of SEND_RECORDS against its body. May not live here: whether a lane may be
sent to (engine.sending), the records' own checks (kourou.protocol.record_batch).

State: none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kourou.engine.appends import Lane
from kourou.engine.inputs import Buffer, Received
from kourou.errors import BadRequest, MessageIllegal
from kourou.model.limits import BATCH_MESSAGES_MAX
from kourou.protocol.messages.sending import SendRecords
from kourou.protocol.record_batch import RecordColumns, columns, topics_of


def open_send(
    received: Received, request: SendRecords
) -> tuple[Buffer, npt.NDArray[np.int64], npt.NDArray[np.uint16] | None]:
    """The records of a send, their sizes, and for each its lane; None if there is only one.

    Raises BadRequest for a header that contradicts itself; the records are not looked at.
    """
    if len(received.body) != 1:
        raise BadRequest(f"a send has one body part, this one has {len(received.body)}")
    if not request.lanes:
        raise BadRequest("a send names at least one lane")
    sizes = _numbers(request.sizes, np.dtype("<u4"), "sizes").astype(np.int64)
    count = len(sizes)
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise BadRequest(f"a send has 1 to {BATCH_MESSAGES_MAX} records, this one has {count}")
    lane_of: npt.NDArray[np.uint16] | None = None
    if len(request.lanes) > count or len(set(request.lanes)) < len(request.lanes):
        # Each lane is numbered by itself: one named twice would give offsets twice.
        raise BadRequest("a send names each of its lanes once, and none without records")
    if request.lane_of:
        lane_of = _numbers(request.lane_of, np.dtype("<u2"), "lane_of")
        if len(lane_of) != count or int(lane_of.max()) >= len(request.lanes):
            raise BadRequest("lane_of does not name one of the lanes for every record")
    elif len(request.lanes) != 1:
        raise BadRequest("a send of several lanes says which record is of which lane")
    return received.body[0], sizes, lane_of


def check_lane_bytes(
    drafts: RecordColumns, lanes: Sequence[Lane], lane_of: npt.NDArray[np.uint16] | None
) -> None:
    """Each record must carry the topic and queue id of the lane it claims."""
    queue_ids = np.fromiter((lane[1] for lane in lanes), dtype=np.int64, count=len(lanes))
    wanted = queue_ids[0] if lane_of is None else queue_ids[lane_of]
    if not bool(np.all(drafts.queue_ids == wanted)):
        raise MessageIllegal("a record's queue id is not that of its lane; nothing was stored")
    topics, topic_of = topics_of(drafts)
    if lane_of is None:
        agree = topics == [lanes[0][0].encode()]
    else:
        number_of = {topic: number for number, topic in enumerate(topics)}
        numbers = np.asarray([number_of.get(lane[0].encode(), -1) for lane in lanes])
        agree = bool((numbers[lane_of] == (0 if topic_of is None else topic_of)).all())
    if not agree:
        raise MessageIllegal("a record's topic is not that of its lane; nothing was stored")


def without_refused(
    blob: Buffer,
    drafts: RecordColumns,
    lane_of: npt.NDArray[np.uint16] | None,
    codes: list[int],
) -> tuple[Buffer, RecordColumns, npt.NDArray[np.uint16] | None, int]:
    """Only the records of accepted lanes, back to back again."""
    if lane_of is None:
        return blob, drafts, lane_of, 0
    accepted = np.asarray([code == 0 for code in codes])[lane_of]
    view = memoryview(blob)
    kept = np.flatnonzero(accepted)
    if len(kept) == 0:
        return blob, drafts, lane_of, 0
    pieces = [
        view[int(drafts.starts[i]) : int(drafts.starts[i]) + int(drafts.sizes[i])] for i in kept
    ]
    joined = b"".join(pieces)
    sizes = drafts.sizes[kept]
    starts = np.cumsum(sizes) - sizes
    return joined, columns(joined, starts, sizes), lane_of[kept], len(kept)


def _numbers(raw: bytes, dtype: np.dtype[np.generic], name: str) -> npt.NDArray[np.uint16]:
    if len(raw) % dtype.itemsize:
        raise BadRequest(f"{name} is not a whole number of {dtype.itemsize}-byte integers")
    return np.frombuffer(raw, dtype=dtype)
