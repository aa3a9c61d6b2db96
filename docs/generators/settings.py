"""docs/reference/settings.md: every setting of services and clients, with three defaults each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from generators.tables import code, document, head, link, paragraph, sentence, table

from kourou.broker.config import BrokerSettings
from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.model.refused_settings import REFUSED
from kourou.service.process_keys import ProcessKeys
from kourou.settings.declaration import Setting, Settings, settings_of
from kourou_console.config import ConsoleSettings
from kourou_filter_server.config import FilterServerSettings
from kourou_namesrv.config import NamesrvSettings
from kourou_spark_etl.config import EtlSettings

SERVICES: Mapping[str, type[ProcessKeys]] = {
    "Broker": BrokerSettings,
    "Name server": NamesrvSettings,
    "Filter server": FilterServerSettings,
    "Spark service": EtlSettings,
    "Console": ConsoleSettings,
}
CLIENTS: tuple[type[Settings], ...] = (
    ClientSettings,
    ProducerSettings,
    ConsumerSettings,
    PullConsumerSettings,
)
SOURCES = (
    "libs/kourou/engine/policy.py",
    "libs/kourou/broker",
    "services/namesrv/kourou_namesrv/config.py",
    "services/filter-server/kourou_filter_server/config.py",
    "services/spark-etl/kourou_spark_etl/config.py",
    "services/console/kourou_console",
    "libs/kourou/service/process_keys.py",
    "libs/kourou/model/refused_settings.py",
    "libs/kourou/client/settings/client_settings.py",
    "libs/kourou/client/settings/consumer_settings.py",
)
WITHOUT_EFFECT = "*Without effect in this version.*"
WARM = "yes"
"""The setting can be changed while the service runs."""

LONG = 32
"""A default that is longer than this is not repeated in its row."""

ABOUT = """\
Settings of broker, name server, filter server, Spark service, console and client. The tables
compare three defaults: Kourou's, that of the documents behind [FEATURES.md](../FEATURES.md), and
that of RocketMQ 4.9. A dash means that there is no such setting or no stated default."""

READING = """\
Keys keep RocketMQ's spelling, so an existing `broker.conf` works. A value comes from the command
line, else from the environment (`KOUROU_` and the key in capitals: {environment}), else from the
file given with `-c`, else it is the default. *Live* settings can be changed with `kourou admin
updateBrokerConfig` while the service runs; the others need a restart. Unknown keys are refused.
Keys *without effect* are accepted and logged as a warning."""

REFUSED_ABOUT = """\
These keys of RocketMQ enable features that Kourou does not have, or has in another way. A service
does not start if one of them is in its file, on its command line or in its environment, unless it
is one of its settings above; `updateBrokerConfig` refuses it, and a client with it fails to open. A
value that disables the feature is accepted. Every other key that begins with `tls.` is refused,
whatever its value."""

CLIENT_READING = """\
Client settings are frozen dataclasses; none is live. `from_rocketmq(...)` and properties files use
the key, code uses the field name."""


def page(root: Path) -> str:
    """Settings of services by subject, then the fields of the clients' settings classes."""
    lines = head("Settings", ABOUT, *SOURCES)
    example = settings_of(BrokerSettings)[0]
    environment = f"{code(example.environment_name)} for {code(example.key)}"
    lines += [paragraph(READING.format(environment=environment)), ""]
    lines += ["All keys by name:", "", *_index(), ""]
    for title, kind in SERVICES.items():
        lines += [f"## {title}", "", *_service(kind)]
    lines += ["## Refused", "", paragraph(REFUSED_ABOUT), ""]
    lines += table(
        ("key", "accepted", "why any other value is refused", "instead"),
        [
            (code(key), ", ".join(map(_accepted, one.usual)), one.why, one.instead)
            for key, one in REFUSED.items()
        ],
    )
    lines += ["## Clients", "", paragraph(CLIENT_READING), ""]
    for client in CLIENTS:
        lines += [f"### {code(client.__name__)}", "", sentence(client), ""]
        lines += _client(client)
    return document(lines)


def _index() -> Iterator[str]:
    for title, kind in SERVICES.items():
        keys = sorted((one.key for one in settings_of(kind)), key=str.lower)
        yield paragraph(f"- {link(title, title)}: " + ", ".join(map(code, keys)))
    for client in CLIENTS:
        names = sorted(one.name for one in settings_of(client))
        yield paragraph(
            f"- {link(code(client.__name__), client.__name__)}: " + ", ".join(map(code, names))
        )


# -- services -------------------------------------------------------------------------------------


def _service(kind: type[ProcessKeys]) -> Iterator[str]:
    for title, group in _groups(kind).items():
        if title:
            yield from (f"**{title}**", "")
        yield from table(
            ("key", "default", "documents", "RocketMQ 4.9", "values", "live", "what it does"),
            map(_service_row, group),
        )
    if not kind.inert_keys:
        return
    known = {name for one in settings_of(kind) for name in (one.key, *one.aliases)}
    count = len(set(kind.inert_keys) - known)
    yield paragraph(
        f"{count} more keys of RocketMQ are accepted without effect: see "
        "[rocketmq_keys.py](../../libs/kourou/service/rocketmq_keys.py)."
    )
    yield ""


def _groups(kind: type[Any]) -> dict[str, list[Setting]]:
    """The settings by the title of the class that declares them, in the order of the fields."""
    found: dict[str, list[Setting]] = {}
    for one in settings_of(kind):
        owner = next(base for base in kind.__mro__ if one.name in inspect.get_annotations(base))
        title = "" if owner is kind else sentence(owner).rstrip(".")
        found.setdefault(title, []).append(one)
    return found


def _service_row(one: Setting) -> tuple[str, ...]:
    about = one.about.rstrip(".") + "."
    ours = one.shown_default
    return (
        code(one.key),
        _shown(ours),
        *_others(one, ours),
        _values(one),
        WARM if one.dynamic else "",
        f"{about} {WITHOUT_EFFECT}" if one.without_effect else about,
    )


def _values(one: Setting) -> str:
    words = one.range_text
    if not words:
        words = {int: "whole number", Path: "path"}.get(one.kind, "text")
    return f"{words} {one.unit}".rstrip()


# -- clients --------------------------------------------------------------------------------------


def _client(kind: type[Settings]) -> Iterator[str]:
    yield from table(
        ("field", "key", "default", "documents", "RocketMQ 4.9", "values", "what it does"),
        map(_client_row, settings_of(kind)),
    )
    if kind.inert_keys:
        yield from ("Accepted for the sake of RocketMQ's files, and of no use here:", "")
        yield from table(
            ("key", "RocketMQ 4.9", "why", "another value"),
            [
                (
                    code(key),
                    _shown(one.usual),
                    one.why,
                    "is refused" if one.refused else "is warned of",
                )
                for key, one in sorted(kind.inert_keys.items())
            ],
        )


def _client_row(one: Setting) -> tuple[str, ...]:
    ours = _text(one.default)
    return (
        code(one.name),
        code(one.key),
        _shown(ours),
        *_others(one, ours),
        _client_values(one),
        f"{one.about} {WITHOUT_EFFECT}" if one.without_effect else one.about,
    )


def _text(default: object) -> str:
    """A default as text."""
    if default is None or default in ((), {}):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return str(default.value if isinstance(default, StrEnum) else getattr(default, "name", default))


def _client_values(one: Setting) -> str:
    if one.form is not None:
        return one.form.expected
    if one.kind in (int, float):
        words = f"at least {one.low}" if one.high is None else one.range_text
        return f"{words} {one.unit}".rstrip()
    return one.range_text or ("texts" if one.kind is tuple else "text")


# -- cells ----------------------------------------------------------------------------------------


def _shown(text: str) -> str:
    """A default; values are formatted as code, words as text."""
    if not text:
        return "empty"
    words = text == "none" or (" " in text and not re.search(r"\d", text))
    return text if words else code(text)


def _accepted(text: str) -> str:
    """A value that is accepted for an unsupported key, formatted as code."""
    return code(text) if text else "empty"


def _others(one: Setting, ours: str) -> Iterator[str]:
    """The defaults of the documents and of RocketMQ; a dash if there is none."""
    for column, text in (("seed", one.seed), ("rocketmq", one.rocketmq)):
        if column in one.same:
            yield "the same" if len(ours) > LONG else _shown(ours)
        else:
            yield _shown(text) if text else "–"
