"""Who registers with a name server, and may it lead?

A promotion is kept among the key/value settings, so an old leader that comes back years later is
refused, too, and the history tells who was promoted when:

    namespace  KOUROU_PROMOTED
    key        cluster/brokerName
    value      epoch, a blank, the address of whoever registered with it first

Only epochs of promotions are kept: within one, a leader succeeds itself. Followers are told the one
that is kept, so that the next promotion begins behind it. If two members began the same promotion
all the same, the higher brokerId outdoes the other for good (decision 0095). An operator who wants
an old leader back after all deletes the key (`kourou admin deleteKvConfig`); nothing else removes
it. A broker that tells no epoch, RocketMQ's, is never judged.

State: none of its own; what was promoted is a projection of the key/value events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kourou.errors import BadRequest, NotLeader
from kourou.model.limits import BROKER_NAME_LENGTH_MAX
from kourou.model.route import MASTER_ID
from kourou.replication.epoch_numbers import PROMOTION, STARTS, are_rivals, last_of_promotion
from kourou_namesrv.key_values import KeyValues

NAMESPACE = "KOUROU_PROMOTED"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers. `addresses` has `carrier:listener` -> the address to dial there.

    `filter_listeners` has the same of each of its filter servers; None where only RocketMQ's list
    says where they are. `epoch` is the newest of its log, `promotion` the one with which its newest
    promotion began (0: none did); None for a broker that tells none.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    filter_listeners: tuple[dict[str, str], ...] | None = None
    epoch: int | None = None
    promotion: int | None = None


class Outdone(NotLeader):
    """Another broker leads this log; `epoch` is higher than any that this one may have.

    Do: Start this broker as a follower, under a brokerId that no other broker uses.
    """

    def __init__(self, identity: Identity, known: int, where: str, *, rival: bool = False) -> None:
        also = ", which was promoted at the same time" if rival else ""
        super().__init__(
            f"epoch {known} of broker {identity.name} was started {where}, but the "
            f"epoch of this leader is {identity.epoch}{also}",
            hint="restart it as a follower, or promote it with force",
        )
        self.epoch = last_of_promotion(known) if rival else known


def check_identity(identity: Identity) -> None:
    """Refuse what nobody could be called. Raises BadRequest."""
    for what, text in (
        ("brokerName", identity.name),
        ("clusterName", identity.cluster),
        ("brokerAddr", identity.address),
    ):
        if not 0 < len(text) <= BROKER_NAME_LENGTH_MAX or not text.isprintable():
            raise BadRequest(f"{what} must be 1 to {BROKER_NAME_LENGTH_MAX} printable characters")
    if identity.broker_id < 0:
        raise BadRequest(f"brokerId is {identity.broker_id}; it must be 0 or more")


def check_leader(identity: Identity, there: Identity) -> None:
    """Refuse a leader that was outdone by the one that stands there. Raises Outdone."""
    _check_epoch(identity, there.epoch, there.promotion, there.address)


def _check_epoch(
    identity: Identity, known: int | None, promotion: int | None, address: str
) -> None:
    """Refuse a leader that the one at that address outdid, in the epoch `known`. Raises Outdone.

    `promotion` is that one's, None if it tells none.
    """
    if identity.broker_id != MASTER_ID or identity.epoch is None or known is None:
        return
    where = f"by {address}" if address else "elsewhere"
    mine = identity.promotion
    if mine is not None and promotion is not None and are_rivals(mine, promotion):
        if promotion % STARTS > mine % STARTS:
            raise Outdone(identity, known, where, rival=True)
    elif known > identity.epoch:
        raise Outdone(identity, known, where)


# -- promotions -----------------------------------------------------------------------------------


def key_of(identity: Identity) -> str:
    """Where a log's promotion is kept."""
    return f"{identity.cluster}/{identity.name}"


def promoted(key_values: KeyValues, identity: Identity) -> tuple[int, str]:
    """The epoch of the newest promotion of a log and who registered with it; (0, "") if none.

    What somebody else wrote there and is no number counts as nothing.
    """
    epoch, _, address = (key_values.get(NAMESPACE, key_of(identity)) or "").partition(" ")
    return (int(epoch), address) if epoch.isascii() and epoch.isdigit() else (0, "")


def check_promoted(key_values: KeyValues, identity: Identity) -> None:
    """Refuse a leader that comes back after another one was promoted. Raises Outdone."""
    epoch, address = promoted(key_values, identity)
    _check_epoch(identity, epoch, epoch, address)


def news(key_values: KeyValues, identity: Identity) -> str | None:
    """The value to keep of a leader that has registered; None if it is no newly promoted one."""
    if identity.broker_id != MASTER_ID or identity.epoch is None or identity.epoch < PROMOTION:
        return None
    epoch, _ = promoted(key_values, identity)
    mine = identity.promotion or identity.epoch
    newer = mine // PROMOTION > epoch // PROMOTION
    if not newer and (identity.promotion is None or not are_rivals(mine, epoch)):
        return None
    return f"{mine} {identity.address}"


def to_outdo(key_values: KeyValues, identity: Identity, heard: Mapping[str, int]) -> int | None:
    """The promotion that a follower must outdo if it is to lead; None for a leader, or if none.

    `heard`: those that may not be kept yet, by the same keys.
    """
    if identity.broker_id == MASTER_ID or identity.epoch is None:
        return None
    kept, _ = promoted(key_values, identity)
    return max(kept, heard.get(key_of(identity), 0)) or None
