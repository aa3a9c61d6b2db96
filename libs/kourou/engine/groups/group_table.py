"""The consumer groups of this broker, and their configurations.

State: projection of GroupPut and GroupDeleted; owned and changed in place by `evolve`, like topics.

Invariants:
- `version.counter` grows by one with every event that changes the table
- no command creates two groups whose names differ only in case (an import may)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kourou.engine.admin.config_table import ConfigTable
from kourou.errors import BadRequest, GroupNotFound, Rejected
from kourou.events.control_events import Event, GroupDeleted, GroupPut
from kourou.model import names
from kourou.model.limits import GROUPS_MAX, TOPIC_QUEUES_MAX
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion
from kourou.runtime import user_of_actor

START_GROUPS = tuple(sorted(names.SYSTEM_GROUPS - {names.TRANSACTION_GROUP}))
"""Groups that a broker creates for itself at start, as RocketMQ does."""

_INT32_MAX = 2**31 - 1


@dataclass(slots=True)
class GroupAggregate(ConfigTable[GroupConfig]):
    """The table of groups."""

    def copy(self) -> GroupAggregate:
        """Return an independent copy. O(groups)."""
        creators = dict(self.creators)
        return GroupAggregate(dict(self.table), self.version, self.folded.copy(), creators)


def groups_of(
    table: Collection[GroupConfig], version: DataVersion, creators: Mapping[str, str]
) -> GroupAggregate:
    """Return the state with these groups, as read from a snapshot."""
    groups = GroupAggregate(version=version, creators=dict(creators))
    for config in table:
        groups.put(config)
    return groups


# -- evolve ---------------------------------------------------------------------------------------


def evolve(
    groups: GroupAggregate, event: GroupPut | GroupDeleted, at_ms: int, actor: str = ""
) -> None:
    """Apply one event, in place; `actor` caused it."""
    if isinstance(event, GroupPut):
        groups.put(event.group, user_of_actor(actor))
    else:
        groups.remove(event.before.name)
    groups.changed(at_ms)


# -- decide ---------------------------------------------------------------------------------------


def decide_put(groups: GroupAggregate, wanted: GroupConfig) -> list[Event]:
    """Create or change a group. Raises Rejected."""
    name = names.check_group(wanted.name)
    _check_range("retryQueueNums", wanted.retry_queue_nums, 0, TOPIC_QUEUES_MAX)
    _check_range("retryMaxTimes", wanted.retry_max_times, 0, _INT32_MAX)
    _check_range("brokerId", wanted.broker_id, 0, _INT32_MAX)
    _check_range(
        "whichBrokerWhenConsumeSlowly", wanted.which_broker_when_consume_slowly, 0, _INT32_MAX
    )
    before = groups.get(name)
    if before is None:
        groups.check_new("group", name, GROUPS_MAX)
    return [] if wanted == before else [GroupPut(wanted, before)]


def decide_auto_create(groups: GroupAggregate, name: str, *, enabled: bool) -> list[Event]:
    """Create a group that a consumer uses, if it does not exist and creation is allowed.

    `enabled` is autoCreateSubscriptionGroup; system groups are created in any case. Raises
    GroupNotFound (26) if creation is not allowed.
    """
    if name in groups:
        return []
    names.check_group(name)
    if not enabled and not names.is_system_group(name):
        raise GroupNotFound(
            f"consumer group {name} does not exist",
            hint="create it: autoCreateSubscriptionGroup is false",
        )
    groups.check_new("group", name, GROUPS_MAX)
    return [GroupPut(GroupConfig(name))]


def decide_delete(groups: GroupAggregate, name: str, *, remove_offset: bool) -> list[Event]:
    """Delete a group; a missing one is not an error, as in RocketMQ. Raises Rejected."""
    names.check_group(name)
    if names.is_system_group(name):
        raise Rejected(f"group {name} is internal and cannot be deleted")
    before = groups.get(name)
    return [] if before is None else [GroupDeleted(before, remove_offset)]


def decide_start(groups: GroupAggregate) -> list[Event]:
    """Create the broker's own groups at start, unless they exist."""
    return [GroupPut(GroupConfig(name)) for name in START_GROUPS if name not in groups]


def _check_range(what: str, value: int, minimum: int, maximum: int) -> None:
    if not minimum <= value <= maximum:
        raise BadRequest(f"{what} is {value}; it must be between {minimum} and {maximum}")
