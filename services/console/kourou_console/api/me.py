"""The caller's identity and rights, and the available features."""

from __future__ import annotations

import msgspec

import kourou
from kourou_console.call import Call
from kourou_console.gateway import Gateway
from kourou_console.operation import NoParameters, Operation


class Me(msgspec.Struct, frozen=True):
    """The caller's identity and rights, and the gateway."""

    #: The token's name; "anybody" if there are no tokens.
    name: str
    #: The caller's rights, of read, write and admin.
    rights: list[str]
    #: Whether every call needs a token.
    token_required: bool
    version: str
    producer_group: str
    #: Null until the cluster has replied for the first time.
    cluster: str | None
    #: Services in addition to brokers: spark.
    features: dict[str, bool]
    as_of_ms: int


async def who_am_i(gateway: Gateway, parameters: NoParameters, call: Call) -> Me:
    """The caller."""
    settings = gateway.settings
    rights = [one.name.lower() for one in type(call.caller.right) if one <= call.caller.right]
    return Me(
        call.caller.name,
        rights,
        settings.token_file is not None,
        kourou.__version__,
        settings.producer_group,
        gateway.cluster_name,
        {"spark": bool(settings.spark_etl_address)},
        gateway.clock.now_ms(),
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/me",
        "who_am_i",
        "Your identity and rights at this gateway, and its available parts.",
        "About this gateway",
        who_am_i,
        Me,
        call=True,
    ),
)
