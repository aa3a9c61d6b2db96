"""The common parts of all lists of the API, and concurrent requests to several brokers.

A broker that does not reply in time is named in `missing`; the other replies are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from kourou.errors import KourouError, Rejected, Unavailable
from kourou.model.limits import CONSOLE_LIST_ITEMS_MAX, REASON_LENGTH_MAX
from kourou.protocol.bodies.route_bodies import ClusterInfo
from kourou.time_limit import within
from kourou_console.gateway import Gateway
from kourou_console.http.responses import HttpError

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)

LIST_ITEMS = 1_000

LOOK_S = 4.0
"""The timeout of one broker for its part of a list: shorter than a person waits."""

ASKED_AT_ONCE = 32
"""The number of concurrent requests to brokers, or for topics or groups, for one response."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=CONSOLE_LIST_ITEMS_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Reason = Annotated[str, msgspec.Meta(max_length=REASON_LENGTH_MAX)]


class Missing(msgspec.Struct, frozen=True):
    """A server that did not reply (`broker-b`), and why."""

    what: str
    why: str


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of `total`; None: unknown. `truncated`: there are more."""

    items: list[T]
    total: int | None
    as_of_ms: int
    truncated: bool = False
    missing: list[Missing] = []


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a change, or with `preview` its expected effects; `says` describes them."""

    preview: bool
    says: list[str]
    as_of_ms: int
    missing: list[Missing] = []


class Preview(msgspec.Struct, frozen=True):
    """`preview`: only report the effects."""

    preview: bool = False


class ValueChange(msgspec.Struct, frozen=True):
    """One value that a change replaces."""

    name: str
    before: str | int | bool | None
    after: str | int | bool | None


def changes_between(
    before: msgspec.Struct | None, after: msgspec.Struct, names: Iterable[str]
) -> list[ValueChange]:
    """The differences; all values if there was nothing before."""
    found = []
    for name in names:
        old = None if before is None else getattr(before, name)
        new = getattr(after, name)
        if before is None or old != new:
            found.append(ValueChange(name, old, new))
    return found


def why(error: BaseException) -> str:
    """The text for something that could not be requested."""
    if isinstance(error, TimeoutError):
        return "it did not respond in time"
    if isinstance(error, KourouError):
        return str(error)
    raise error


async def asked(
    keys: Collection[str], ask: Callable[[str], Awaitable[T]], *, limit_s: float = LOOK_S
) -> tuple[dict[str, T], list[Missing]]:
    """Request each key concurrently, with a timeout. Returns the results and the failed keys."""
    found, failed = await _outcomes(keys, ask, limit_s)
    return found, [Missing(key, why(error)) for key, error in failed.items()]


async def answers(
    keys: Collection[str], ask: Callable[[str], Awaitable[T]]
) -> tuple[dict[str, T], list[Missing]]:
    """Like `asked`, but raises an error, which names the keys, if there is no result at all.

    If all requests were rejected, the rejection is raised as it is.
    """
    found, failed = await _outcomes(keys, ask, LOOK_S)
    missing = [Missing(key, why(error)) for key, error in failed.items()]
    if failed and not found:
        first = next(iter(failed.values()))
        if all(isinstance(error, Rejected) for error in failed.values()):
            raise first
        raise Unavailable(
            f"no broker responds: {missing[0].what}: {missing[0].why}", hint="see /v1/cluster"
        )
    return found, missing


async def _outcomes(
    keys: Collection[str], ask: Callable[[str], Awaitable[T]], limit_s: float
) -> tuple[dict[str, T], dict[str, BaseException]]:
    gate = asyncio.Semaphore(ASKED_AT_ONCE)
    found: dict[str, T] = {}
    failed: dict[str, BaseException] = {}

    async def one(key: str) -> None:
        async with gate:
            try:
                found[key] = await within(ask(key), limit_s)
            except (KourouError, TimeoutError) as error:
                failed[key] = error

    await asyncio.gather(*map(one, keys))
    # In the order of the keys, not of the replies.
    return {key: found[key] for key in keys if key in found}, {
        key: failed[key] for key in keys if key in failed
    }


async def brokers_of(
    gateway: Gateway, broker: str | None = None, cluster: str | None = None
) -> list[str]:
    """All registered brokers, those of one cluster, or one. Raises HttpError (404) if none."""
    info: ClusterInfo = await gateway.admin.cluster.info()
    if cluster is not None and cluster not in info.clusters:
        raise not_there(f"cluster {cluster!r} not found", info.clusters)
    if broker is not None and broker not in info.brokers:
        raise not_there(f"broker {broker!r} not found", info.brokers)
    if broker is not None:
        return [broker]
    if cluster is not None:
        return sorted(name for name in info.clusters[cluster] if name in info.brokers)
    return sorted(info.brokers)


def not_there(text: str, known: Iterable[str]) -> HttpError:
    """A 404 error with the known names."""
    return HttpError(
        HTTPStatus.NOT_FOUND, text, hint=f"known: {', '.join(sorted(known)) or 'none'}"
    )


def view_from(kind: type[StructT], source: object, /, **more: Any) -> StructT:
    """A response item with the fields that `source` has under the same names, and `more`."""
    names = (name for name in kind.__struct_fields__ if name not in more)
    return kind(**{name: getattr(source, name) for name in names}, **more)


def cut(items: Sequence[T], limit: int) -> tuple[list[T], bool]:
    """The first `limit` items, and whether there are more."""
    return list(items[:limit]), len(items) > limit
