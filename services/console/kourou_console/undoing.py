"""Which decisions no broker takes back, whatever is forced.

Lives here: that rule, by an event's type and what it is about, so that nobody is offered what will
be refused. May not live here: undo itself, and what may be refused because of what has changed
since (brokers decide).

State: none.
"""

from __future__ import annotations

from collections.abc import Collection

from kourou.model.names import is_system_group
from kourou_console.topic_kinds import TopicKind, kind_of

TOPICS = frozenset({"TopicPut", "TopicDeleted"})
GROUPS = frozenset({"GroupPut", "GroupDeleted"})
SKIPPED = "FilterMessagesSkipped"
UNDONE = frozenset(
    {
        *TOPICS,
        *GROUPS,
        *("SettingChanged", "OffsetsReset"),
        *("FilterUploaded", "FilterEnabled", "FilterDisabled", "FilterPolicySet"),
        *("FilterQuarantined", "FilterReleased", "FilterDeleted", "FilterRestored"),
    }
)
"""Types of events that brokers take back."""


def refusal(
    event_type: str,
    name: str,
    *,
    created: bool,
    brokers: Collection[str] = (),
    clusters: Collection[str] = (),
) -> str | None:
    """Why nobody can take an event back; None: its broker may.

    `name` is that of the topic or group; `created`: nothing of that name was there before.
    """
    if event_type == SKIPPED:
        return "Messages that were passed over do not come back by an undo: reset the group."
    if event_type not in UNDONE:
        return (
            f"A {event_type} only tells what happened: what was decided about topics, groups, "
            "settings, resets and filters can be taken back."
        )
    if event_type in TOPICS and kind_of(name, brokers, clusters).kind is TopicKind.SYSTEM:
        return f"The topic {name} belongs to the broker, which neither changes nor deletes it."
    if event_type in GROUPS and created and is_system_group(name):
        return f"The group {name} belongs to the broker, which does not delete it."
    return None
