"""Defines which changes can never be reverted, and the effect of reverting the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

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
"""Types of events that brokers can revert."""


def refusal(
    event_type: str,
    name: str,
    *,
    created: bool,
    brokers: Collection[str] = (),
    clusters: Collection[str] = (),
) -> str | None:
    """Why an event can never be reverted; None if its broker may revert it.

    `name` is that of the topic or group; `created`: it did not exist before the event.
    """
    if event_type == SKIPPED:
        return "Skipped messages are not restored: reset the group's offsets instead."
    if event_type not in UNDONE:
        return (
            f"A {event_type} event only records what happened: changes of topics, groups, "
            "settings, offsets and filters can be reverted."
        )
    if event_type in TOPICS and kind_of(name, brokers, clusters).kind is TopicKind.SYSTEM:
        return f"The topic {name} is a system topic; it cannot be changed or deleted."
    if event_type in GROUPS and created and is_system_group(name):
        return f"The group {name} is a system group; it cannot be deleted."
    return None


def effect(event_type: str, fields: Mapping[str, Any]) -> str:
    """The effect of reverting an event, as a sentence; `fields` are those of the event."""
    before, version = fields.get("before"), fields.get("version")
    match event_type:
        case "TopicPut" if before is None:
            return "It did not exist before: it is deleted with its messages, only with force."
        case "GroupPut" if before is None:
            return "It did not exist before: it is deleted."
        case "SettingChanged" if before is None:
            return "The setting returns to the value of the broker's file, or the default."
        case "OffsetsReset":
            return "The group resumes at its offsets before the reset."
        case "FilterUploaded":
            return f"Version {version} is deleted, if the filter has no other, and the filter too."
        case "FilterEnabled" if before is None:
            return "No version is enabled, as before: consumers that use the filter wait."
        case "FilterEnabled" | "FilterDisabled":
            return f"Version {before} is enabled again."
        case "FilterPolicySet":
            return "The previous policy applies again."
        case "FilterQuarantined":
            return f"The quarantine of version {version} ends."
        case "FilterReleased":
            return f"Version {version} is quarantined again."
        case "FilterDeleted":
            return "The filter is restored with all its versions."
        case "FilterRestored":
            return "The filter is deleted again."
        case _:
            return "The previous state is restored, unless it has changed since."
