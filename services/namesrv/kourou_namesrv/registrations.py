"""Checks of registrations: which brokers may register, and which of them may lead.

A promotion is stored among the key/value settings. Therefore an old leader that returns years later
is still rejected, and the history shows every promotion:

    namespace  KOUROU_PROMOTED
    key        cluster/brokerName
    value      epoch, a blank, the address of the first broker that registered with it

Only epochs of promotions are stored: within one promotion, a leader succeeds itself. Followers
receive the stored epoch, so that the next promotion starts above it. If two replicas nevertheless
start the same promotion, the higher brokerId supersedes the other permanently (decision 0095). To
let an old leader lead again, an operator deletes the key (`kourou admin deleteKvConfig`); nothing
else removes it. Brokers that send no epoch (RocketMQ's) are not checked.

State: none of its own; the promotions are a projection of the key/value events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kourou.errors import BadRequest, NotLeader
from kourou.model.limits import BROKER_NAME_LENGTH_MAX
from kourou.model.topic import MASTER_ID
from kourou.replication.epochs import PROMOTION, STARTS, are_rivals, last_of_promotion
from kourou_namesrv.key_values import KeyValues

NAMESPACE = "KOUROU_PROMOTED"


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity of a registering broker. `addresses` maps `carrier:listener` to its address
    there.

    `filter_listeners` has the same for each of its filter servers; None if only RocketMQ's list has
    their addresses. `epoch` is the newest epoch of its log, `promotion` the first epoch of its
    newest promotion (0: never promoted); None if the broker does not send it.
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
    """Another broker leads this log; `epoch` is higher than any epoch that this broker may use.

    Do: Start this broker as a follower, under a brokerId that no other broker uses.
    """

    def __init__(
        self, identity: BrokerIdentity, known: int, where: str, *, rival: bool = False
    ) -> None:
        also = ", which was promoted at the same time" if rival else ""
        super().__init__(
            f"epoch {known} of broker {identity.name} was started {where}, but the "
            f"epoch of this leader is {identity.epoch}{also}",
            hint="restart it as a follower, or promote it with force",
        )
        self.epoch = last_of_promotion(known) if rival else known


def check_identity(identity: BrokerIdentity) -> None:
    """Validate names, address and ID. Raises BadRequest."""
    for what, text in (
        ("brokerName", identity.name),
        ("clusterName", identity.cluster),
        ("brokerAddr", identity.address),
    ):
        if not 0 < len(text) <= BROKER_NAME_LENGTH_MAX or not text.isprintable():
            raise BadRequest(f"{what} must be 1 to {BROKER_NAME_LENGTH_MAX} printable characters")
    if identity.broker_id < 0:
        raise BadRequest(f"brokerId is {identity.broker_id}; it must be 0 or more")


def check_leader(identity: BrokerIdentity, there: BrokerIdentity) -> None:
    """Raises Outdone if the registered leader `there` supersedes this leader."""
    _check_epoch(identity, there.epoch, there.promotion, there.address)


def _check_epoch(
    identity: BrokerIdentity, known: int | None, promotion: int | None, address: str
) -> None:
    """Raises Outdone if the leader at `address`, whose epoch is `known`, supersedes this leader.

    `promotion` is that leader's promotion, None if it did not send one.
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


def key_of(identity: BrokerIdentity) -> str:
    """The key under which a log's promotion is stored."""
    return f"{identity.cluster}/{identity.name}"


def promoted(key_values: KeyValues, identity: BrokerIdentity) -> tuple[int, str]:
    """The epoch of a log's newest promotion and the address that registered with it; (0, "") if
    none.

    A value that is not a number (an operator can write any value) is ignored.
    """
    epoch, _, address = (key_values.get(NAMESPACE, key_of(identity)) or "").partition(" ")
    return (int(epoch), address) if epoch.isascii() and epoch.isdigit() else (0, "")


def check_promoted(key_values: KeyValues, identity: BrokerIdentity) -> None:
    """Raises Outdone if another leader was promoted after this one."""
    epoch, address = promoted(key_values, identity)
    _check_epoch(identity, epoch, epoch, address)


def news(key_values: KeyValues, identity: BrokerIdentity) -> str | None:
    """The value to store for a leader that has registered; None if it is not newly promoted."""
    if identity.broker_id != MASTER_ID or identity.epoch is None or identity.epoch < PROMOTION:
        return None
    epoch, _ = promoted(key_values, identity)
    mine = identity.promotion or identity.epoch
    newer = mine // PROMOTION > epoch // PROMOTION
    if not newer and (identity.promotion is None or not are_rivals(mine, epoch)):
        return None
    return f"{mine} {identity.address}"


def to_outdo(
    key_values: KeyValues, identity: BrokerIdentity, heard: Mapping[str, int]
) -> int | None:
    """The promotion that a follower must exceed to lead; None for a leader, or if there is none.

    `heard` has promotions that may not be stored yet, by the same keys.
    """
    if identity.broker_id == MASTER_ID or identity.epoch is None:
        return None
    kept, _ = promoted(key_values, identity)
    return max(kept, heard.get(key_of(identity), 0)) or None
