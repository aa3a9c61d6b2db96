"""Secrets are compared in constant time, and no command line or environment has one.

`==` ends at the first character that differs, so its time tells how much of a guess is right. A
clock cannot test that on a shared machine; the code can: `hmac.compare_digest` is the only
comparison. What is in a command line or an environment, other users and all children can read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from kourou.broker.config import BrokerSettings
from kourou.cli.commands import app
from kourou.settings.declaration import settings_of
from kourou_console.config import ConsoleSettings
from kourou_filter_server.config import FilterServerSettings
from kourou_namesrv.config import NamesrvSettings
from kourou_spark_etl.config import EtlSettings

SECRET = re.compile(
    r"(^|_)(secret|password|signature|token|csrf|credential|digest|mac|cookie|nonce)s?(_key)?$"
)
"""Names of values that a client must not be able to guess piece by piece."""

MAKERS = re.compile(r"(^|_)(sign|hmac|digest|_secret|open|credential_of)$")
"""Functions that return such values. `open` is that of a box of encrypted secrets."""

PUBLIC = {
    ("libs/kourou/engine/filters/filter_handler.py", "digest"): "of a source, which is no secret",
    ("libs/kourou/transport/curve_keys.py", "signature"): "the time and size of files",
    ("libs/kourou/transport/tls.py", "signature"): "the time and size of files",
}
"""Values of such a name that are no secrets."""

COMPARED = {
    ("libs/kourou/access/signature.py", "verify"),
    ("libs/kourou/access/signature.py", "same_secret"),
    ("services/console/kourou_console/http/access.py", "caller"),
    ("services/console/kourou_console/http/sessions.py", "who"),
    ("services/console/kourou_console/leases/leases.py", "read"),
}
"""The functions that compare what a client sends with what only this process should know."""


def names_of(side: ast.expr) -> Iterator[str]:
    """The name of a value, if it is that of a secret; calls by the function that is called."""
    match side:
        case ast.Name(id=name) | ast.Attribute(attr=name) if SECRET.search(name):
            yield name
        case ast.Subscript(value=inner) | ast.Await(value=inner):
            yield from names_of(inner)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            if MAKERS.search(name):
                yield name
            elif name in ("encode", "decode", "hex", "strip", "lower", "upper"):
                yield from names_of(side.func.value)  # type: ignore[union-attr]
        case ast.BoolOp(values=values) | ast.Tuple(elts=values):
            for one in values:
                yield from names_of(one)


def comparisons(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name of the secret) of each comparison by `==` or `!=`, also with parts of a tuple."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for at, operator in enumerate(node.ops):
            if isinstance(operator, ast.Eq | ast.NotEq):
                for side in sides[at : at + 2]:
                    yield from ((node.lineno, name) for name in names_of(side))


def test_no_secret_is_compared_by_an_operator(production: list) -> None:
    found = {
        (source.path, line, name.lstrip("_"))
        for source in production
        if source.path.startswith(("libs/", "services/"))
        for line, name in comparisons(source.tree)
    }
    wrong = [one for one in sorted(found) if (one[0], one[2]) not in PUBLIC]
    assert not wrong, f"use kourou.access.signature.same_secret or hmac.compare_digest: {wrong}"
    unused = set(PUBLIC) - {(path, name) for path, _, name in found}
    assert not unused, "remove what is not compared any more"


def test_what_clients_send_is_compared_in_constant_time(production: list) -> None:
    compared = {
        (source.path, node.name)
        for source in production
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "hmac.compare_digest"
    }
    assert compared == COMPARED


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("given == secret", "secret"),
        ("self._secret != given", "_secret"),
        ("fields['a'] == signature.lower()", "signature"),
        ("sign(fields, body, x) == given", "sign"),
        ("self._sign(named) != raw[6:]", "_sign"),
        ("hmac.digest(a, b, 'sha1') == c", "digest"),
        ("box.open(name, sealed) == given", "open"),
        ("(user, token) == pair", "token"),
        ("given == csrf.encode()", "csrf"),
        ("request.secret_key == (stored or '')", "secret_key"),
        ("a < b == tokens[0]", "tokens"),
    ],
)
def test_a_planted_comparison_is_found(text: str, name: str) -> None:
    assert [found for _, found in comparisons(ast.parse(text))] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "len(token) != 35",
        "secret is None",
        "hmac.compare_digest(secret, given)",
        "secret_count == 1",
    ],
)
def test_what_tells_nothing_about_a_secret_is_allowed(text: str) -> None:
    assert not list(comparisons(ast.parse(text)))


# -- command lines and environments ---------------------------------------------------------------

GIVEN = re.compile("secret|password|token|credential", re.IGNORECASE)
SERVICES = (BrokerSettings, ConsoleSettings, EtlSettings, FilterServerSettings, NamesrvSettings)


def options_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The options and arguments of a command and of all commands below it."""
    for one in command.params:
        yield f"{name} {one.name}", one
    for below, inner in getattr(command, "commands", {}).items():
        yield from options_of(inner, f"{name} {below}")


def test_no_command_takes_a_secret_in_its_arguments() -> None:
    found = {
        name: one
        for name, one in options_of(typer.main.get_command(app), "kourou")
        if GIVEN.search(one.name)
    }
    assert "kourou user create secret_file" in found
    values = [name for name, one in found.items() if not (one.is_flag or one.metavar == "FILE")]
    assert not values


def test_no_setting_is_a_secret() -> None:
    """Settings name files with secrets; they may stand in an environment, and are shown."""
    found = [one for kind in SERVICES for one in settings_of(kind) if GIVEN.search(one.key)]
    assert {"eventStorePasswordFile", "tokenFile"} <= {one.key for one in found}
    assert not [one.key for one in found if one.kind is not Path]
