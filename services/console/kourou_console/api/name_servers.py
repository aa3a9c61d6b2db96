"""Name servers: their status, settings, and key/value settings.

State: none. Name servers do not communicate, so a change is sent to each of them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kourou.client.admin.name_servers import ORDER_NAMESPACE
from kourou.errors import KourouError
from kourou.model.limits import CONSOLE_SETTINGS_MAX, GATEWAY_LINE_BYTES_MAX
from kourou_console.gateway import Gateway
from kourou_console.lists import Done, Listing, Missing, Name
from kourou_console.operation import BodyKind, NoParameters, Operation


class NameServer(msgspec.Struct, frozen=True, kw_only=True):
    """A name server as the console dials it; `settings` null: it does not answer, see `why`."""

    address: str
    up: bool
    why: str | None
    settings: dict[str, str] | None


class KeyValue(msgspec.Struct, frozen=True):
    """One key of a namespace."""

    namespace: str
    key: str
    value: str


class ValuesWanted(msgspec.Struct, frozen=True):
    """The keys of one namespace; by default RocketMQ's namespace for settings of ordered topics."""

    namespace: Name = ORDER_NAMESPACE


class KeyPath(msgspec.Struct, frozen=True):
    """The key; `preview`: only report the effects."""

    namespace: Name
    key: Name
    preview: bool = False


class ValueBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its value."""

    value: Annotated[str, msgspec.Meta(max_length=GATEWAY_LINE_BYTES_MAX)]


class NameServerChange(msgspec.Struct, frozen=True):
    """`preview`: only report the effects."""

    preview: bool = False


class NameServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New values as texts, by the names of settings."""

    settings: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=CONSOLE_SETTINGS_MAX)]


async def name_servers(gateway: Gateway, _parameters: NoParameters) -> Listing[NameServer]:
    """The current status of every known name server."""
    found = await gateway.admin.name_servers.each()
    items, missing = [], []
    for address, one in found.items():
        trouble = str(one) if isinstance(one, KourouError) else None
        settings = None if isinstance(one, KourouError) else dict(sorted(one.items()))
        items.append(
            NameServer(address=address, up=trouble is None, why=trouble, settings=settings)
        )
        if trouble is not None:
            missing.append(Missing(address, trouble))
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms(), missing=missing)


async def update(gateway: Gateway, parameters: NameServerChange, body: NameServerSettings) -> Done:
    """Change settings at every name server, which rejects settings that cannot be changed."""
    if not parameters.preview:
        await gateway.admin.name_servers.update_settings(body.settings)
    will = "would be" if parameters.preview else "is"
    return Done(
        preview=parameters.preview,
        says=[
            f"{name} {will} {value}. Read-only settings are refused."
            for name, value in body.settings.items()
        ],
        as_of_ms=gateway.clock.now_ms(),
    )


async def values(gateway: Gateway, parameters: ValuesWanted) -> Listing[KeyValue]:
    """The keys of a namespace with their values, from one name server."""
    found = await gateway.admin.name_servers.list(parameters.namespace)
    items = [KeyValue(parameters.namespace, key, value) for key, value in sorted(found.items())]
    return Listing(items=items, total=len(items), as_of_ms=gateway.clock.now_ms())


async def put_value(gateway: Gateway, parameters: KeyPath, body: ValueBody) -> Done:
    """Set a key at every name server."""
    admin = gateway.admin.name_servers
    before = await admin.get(parameters.namespace, parameters.key)
    if not parameters.preview:
        await admin.put(parameters.namespace, parameters.key, body.value)
    will = "would be" if parameters.preview else "is"
    was = "It was not there." if before is None else f"It was {before}."
    return Done(
        preview=parameters.preview,
        says=[f"{parameters.namespace}/{parameters.key} {will} {body.value}.", was],
        as_of_ms=gateway.clock.now_ms(),
    )


async def delete_value(gateway: Gateway, parameters: KeyPath) -> Done:
    """Remove a key at every name server; a missing key is not an error."""
    admin = gateway.admin.name_servers
    before = await admin.get(parameters.namespace, parameters.key)
    if not parameters.preview:
        await admin.delete(parameters.namespace, parameters.key)
    will = "would be" if parameters.preview else "is"
    was = "It was not there." if before is None else f"It was {before}."
    return Done(
        preview=parameters.preview,
        says=[f"{parameters.namespace}/{parameters.key} {will} removed.", was],
        as_of_ms=gateway.clock.now_ms(),
    )


_CHAPTER = "Name servers"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/name-servers",
        "name_servers",
        "All name servers with state and settings.",
        _CHAPTER,
        name_servers,
        Listing[NameServer],
    ),
    Operation(
        "PATCH",
        "/v1/name-servers/config",
        "update_name_servers",
        "Change run-time settings of all name servers; none can be changed in this version.",
        _CHAPTER,
        update,
        Done,
        NameServerChange,
        NameServerSettings,
        BodyKind.JSON,
    ),
    Operation(
        "GET",
        "/v1/name-servers/values",
        "name_server_values",
        "The keys of a namespace and their values.",
        _CHAPTER,
        values,
        Listing[KeyValue],
        ValuesWanted,
    ),
    Operation(
        "PUT",
        "/v1/name-servers/values/{namespace}/{key}",
        "put_name_server_value",
        "Set a key of a namespace at every name server.",
        _CHAPTER,
        put_value,
        Done,
        KeyPath,
        ValueBody,
        BodyKind.JSON,
    ),
    Operation(
        "DELETE",
        "/v1/name-servers/values/{namespace}/{key}",
        "delete_name_server_value",
        "Remove a key of a namespace, at every name server.",
        _CHAPTER,
        delete_value,
        Done,
        KeyPath,
    ),
)
