"""Headers of replication: how a log is shipped, and how a group agrees who leads.

They travel on the replication listener only, never on those for clients. All are sent one way, and
what answers them is a message of its own; `FetchLog` and `GetLogBeginning` are ordinary requests,
which only read: every broker answers them on its ordinary listener, too, for backups.

Words: an *epoch* is a period with one leader, at most (Raft's term); bytes of an epoch are only
ever appended, by its leader. A *position* counts bytes of the commit log and is the same at every
member. The epoch *at* a position is that of the byte before it, 0 where no epoch was ever opened.
Epochs travel as (epoch, start position) pairs, ascending in both (kourou.replication.epochs).
A member is named as its group's settings name it; a static follower by its broker id.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from kourou.model.limits import (
    DAMAGE_LENGTH_MAX,
    EPOCHS_TOLD_MAX,
    MEMBER_NAME_LENGTH_MAX,
)
from kourou.protocol.request import Int64, Request, Response

Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MemberName = Annotated[str, msgspec.Meta(max_length=MEMBER_NAME_LENGTH_MAX)]
Pairs = Annotated[tuple[tuple[Epoch, Position], ...], msgspec.Meta(max_length=EPOCHS_TOLD_MAX)]


class LogChunk(Request, kw_only=True, frozen=True):
    """LOG_CHUNK (30040): log bytes of one epoch from the leader, or a heartbeat (empty body).

    The body covers the log from `position` up to `end`, which lies beyond its last byte where a
    segment's end is filled up. `previous_epoch` is the epoch at `position`; a follower whose log
    ends below `position`, or has another epoch there, refuses. `data_epoch` is that of the body: if
    it differs from the previous one it begins at `position`. Positions below `confirmed` are safe
    and may be read. `leader_end` and `first_position` bound the leader's log. `round` never
    decreases within an epoch and comes back in the answer, which tells the leader when it was
    heard. `flush`: senders wait for these bytes to be on the follower's disk. `catch_up`: the
    follower is far behind and is to fetch what is confirmed, from any member; below
    `first_position` there is nothing left to fetch. `address`: where clients find the leader; "" if
    others tell that. `joining`: the start of a follower without a vote that gets one when all below
    `joining_at` is confirmed there; 0 for none.
    """

    code: ClassVar[int] = 30040
    group: str
    epoch: Epoch
    leader: MemberName
    position: Position
    end: Position
    previous_epoch: Epoch
    data_epoch: Epoch
    confirmed: Position
    leader_end: Position
    first_position: Position
    round: Int64 = 0
    flush: bool = False
    catch_up: bool = False
    damage: Annotated[str, msgspec.Meta(max_length=DAMAGE_LENGTH_MAX)] = ""
    address: str = ""
    joining: Int64 = 0
    joining_at: Position = 0


class ChunkAck(Request, kw_only=True, frozen=True):
    """CHUNK_ACK (30041): what a follower has of its leader's log.

    Accepted: its log equals the leader's up to `written` and is on disk up to `flushed`; neither
    ever lies beyond what the leader sent in this epoch. Refused: `epochs` are the newest of those
    that it has below the position refused, `end` is where they end; nothing else counts then, but
    `epoch`, if it is above the leader's. `joining`: the start of a member that has no vote, and
    counts for no majority; 0 for one that does.
    """

    code: ClassVar[int] = 30041
    group: str
    epoch: Epoch
    member: MemberName
    accepted: bool
    written: Position = 0
    flushed: Position = 0
    round: Int64 = 0
    epochs: Pairs = ()
    end: Position = 0
    joining: Int64 = 0


class AskVote(Request, kw_only=True, frozen=True):
    """ASK_VOTE (30042): a member wants to lead `epoch`; its log ends at `end`, in `last_epoch`.

    `pre`: it only asks whether it would get the vote, and nobody's epoch changes. `transfer` is the
    round of the StandNow that made it stand, 0 for none: who has heard the old leader in no later
    round votes although that leader lives. `joining`, if not 0, is the start of a member that has
    no vote: it does not stand, and asks only whether anybody counts on the receiver.
    """

    code: ClassVar[int] = 30042
    group: str
    epoch: Epoch
    candidate: MemberName
    last_epoch: Epoch
    end: Position
    pre: bool = False
    transfer: Int64 = 0
    joining: Int64 = 0


class Vote(Request, kw_only=True, frozen=True):
    """VOTE (30043): the answer to AskVote, of the same kind (`pre`).

    Granted: `epoch` is the one that was asked for. Refused: it is the member's own. `joining` comes
    back from the question; if it is not 0, `lived` says whether others may count on what is here.
    """

    code: ClassVar[int] = 30043
    group: str
    epoch: Epoch
    member: MemberName
    granted: bool
    pre: bool = False
    joining: Int64 = 0
    lived: bool = False


class StandNow(Request, kw_only=True, frozen=True):
    """STAND_NOW (30044): the leader of `epoch` gives up leading; the receiver is to stand at once.

    From `round` on the leader acknowledges nothing, until it has been heard in a later one.
    """

    code: ClassVar[int] = 30044
    group: str
    epoch: Epoch
    leader: MemberName
    round: Int64


class Attach(Request, kw_only=True, frozen=True):
    """ATTACH (30045): a static follower asks its leader for the log.

    `epochs` (the newest), `end` and `first_position` describe what it has.
    """

    code: ClassVar[int] = 30045
    cluster: str
    broker_name: str
    broker_id: Int64
    epochs: Pairs = ()
    end: Position = 0
    first_position: Position = 0


class Attached(Request, kw_only=True, frozen=True):
    """ATTACHED (30046): the answer to Attach.

    The follower's log equals the leader's up to `common`; it cuts what lies beyond. `refusal` says
    why it may not follow, "" where it may. `begin_at`, if not 0: the leader's log begins there,
    above `common`; the follower may follow when it has begun anew there (GetLogBeginning).
    """

    code: ClassVar[int] = 30046
    broker_name: str
    broker_id: Int64
    epoch: Epoch
    common: Position = 0
    refusal: str = ""
    begin_at: Position = 0


class FetchLog(Request, kw_only=True, frozen=True):
    """FETCH_LOG (30047): confirmed log bytes from `position` on, of any member.

    At most `max_bytes`, whole records and blanks, all of one epoch and one segment. `damaged`:
    bytes of a damaged region, too, as what they are; else they are answered MESSAGE_CORRUPT.
    """

    code: ClassVar[int] = 30047
    group: str
    position: Position
    max_bytes: Position
    damaged: bool = False


class FetchLogResponse(Response, kw_only=True, frozen=True):
    """The body is the bytes; see LogChunk for the fields. All of them lie below `confirmed`.

    `position` is above the one asked for where the member's log begins later; then there is no
    body, and none where it ends at or below that one. `damage`: why these are no readable records.
    """

    position: Position
    end: Position
    previous_epoch: Epoch
    data_epoch: Epoch
    confirmed: Position
    first_position: Position
    damage: Annotated[str, msgspec.Meta(max_length=DAMAGE_LENGTH_MAX)] = ""


class GetLogBeginning(Request, kw_only=True, frozen=True):
    """GET_LOG_BEGINNING (30048): what must be known to begin a log where this broker's begins.

    What was decided before that position is not in the log any more, nor are the messages that the
    queues counted. The answer comes in pieces: `from_byte` says where the next one begins.
    """

    code: ClassVar[int] = 30048
    group: str
    from_byte: Position = 0


class GetLogBeginningResponse(Response, kw_only=True, frozen=True):
    """The body is a piece of `size` bytes whose CRC-32 is `crc` (kourou.engine.log_beginning).

    They are those for a log that begins at `position`; a piece with another `crc` than the one
    before belongs to another beginning, and the first one is asked for again.
    """

    position: Position
    size: Position
    crc: Int64
