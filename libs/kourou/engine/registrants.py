"""Who registers with a name server, and may it lead?

Lives here: how a broker is told apart, and when a leader is refused because another one was
promoted meanwhile.
May not live here: who is alive (kourou_namesrv.routes), how settings are kept
(kourou.engine.key_value_desk).

A promotion is kept among the key/value settings, so an old leader that comes back years later is
refused, too, and the history tells who was promoted when:

    namespace  KOUROU_PROMOTED
    key        cluster/brokerName
    value      epoch, a blank, the address of whoever registered with it first

Only epochs of promotions are kept: within one, a leader succeeds itself. An operator who wants an
old leader back after all deletes the key (`kourou admin deleteKvConfig`); nothing else removes it.
A broker that tells no epoch, RocketMQ's, is never judged.

State: none of its own; what was promoted is a projection of the key/value events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kourou.engine.key_values import KeyValues
from kourou.errors import BadRequest, NotLeader
from kourou.model.limits import BROKER_NAME_LENGTH_MAX
from kourou.model.route import MASTER_ID
from kourou.replication.epoch_numbers import PROMOTION

NAMESPACE = "KOUROU_PROMOTED"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers. `addresses` has `carrier:listener` -> the address to dial there.

    `filter_listeners` has the same of each of its filter servers; None where only RocketMQ's list
    says where they are. `epoch` is the newest of its log; None for a broker that tells none.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    filter_listeners: tuple[dict[str, str], ...] | None = None
    epoch: int | None = None


class Outdone(NotLeader):
    """Another broker leads this log, in a higher epoch: `epoch`.

    Do: Start this broker as a follower, under a brokerId that nobody else has.
    """

    def __init__(self, identity: Identity, epoch: int, where: str) -> None:
        super().__init__(
            f"epoch {epoch} of {identity.name} was opened {where}, and this leader's is "
            f"{identity.epoch}",
            hint="start it as a follower, or promote it with force",
        )
        self.epoch = epoch


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


def check_epoch(identity: Identity, known: int | None, address: str) -> None:
    """Refuse a leader where one of a higher epoch is known, at that address. Raises Outdone."""
    if identity.broker_id != MASTER_ID or identity.epoch is None or known is None:
        return
    if known > identity.epoch:
        raise Outdone(identity, known, f"by {address}" if address else "elsewhere")


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
    check_epoch(identity, *promoted(key_values, identity))


def news(key_values: KeyValues, identity: Identity) -> str | None:
    """The value to keep of a leader that has registered; None if it is no newly promoted one."""
    if identity.broker_id != MASTER_ID or identity.epoch is None or identity.epoch < PROMOTION:
        return None
    epoch, _ = promoted(key_values, identity)
    if epoch // PROMOTION >= identity.epoch // PROMOTION:
        return None
    return f"{identity.epoch} {identity.address}"
