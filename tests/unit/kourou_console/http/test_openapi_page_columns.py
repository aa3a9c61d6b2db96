"""Every column of the console's tables is one that the API answers, by its description.

What is matched: the key of each column; what `value` and `cell` take of the row (`row.name`,
`({ name }) =>`), and of the things in a list of it (`topics.map(({ topic }) => …)`).

What cannot be matched is walked in tests/browser: rows that no type describes (BY_HAND), what lies
in an untyped field (`figures` of a query), what a function gets that is handed the whole row, and
whether a table is really given the rows that ROWS says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kourou_console.http.openapi import described
from kourou_console.operations import OPERATIONS

SCRIPTS = Path(__file__).resolve().parents[4] / "services/console/kourou_console/static/js"
SHARED = "parts/columns.js"

FILTER = "/v1/filters/{group}/{name}"
EXPLAIN = "GET /v1/messages/{id}/explain"
ROWS: Mapping[str, str] = {
    "pages/audit.js Requests, newest first": "GET /v1/audit items",
    "pages/broker.js Groups at this broker": "GET /v1/brokers/{broker}/groups items",
    "pages/cluster.js Brokers": "GET /v1/cluster clusters.brokers",
    "pages/cluster.js Quotas": "GET /v1/quotas items",
    "pages/cluster.js Sends": "POST /v1/probes items",
    "pages/dead_letters.js Causes": "GET /v1/dead-letters causes",
    "pages/dead_letters.js Dead letters": "GET /v1/dead-letters items",
    "pages/dead_letters.js Groups with dead letters": "GET /v1/dead-letters/groups items",
    "pages/delayed.js By level": "GET /v1/delayed levels",
    "pages/delayed.js Delayed messages": "GET /v1/delayed items",
    "pages/filter.js Versions": f"GET {FILTER} items.versions",
    "pages/filters.js Filter servers": "GET /v1/filters servers",
    "pages/filters.js Filters": "GET /v1/filters items",
    "pages/filters.js Statistics": "GET /v1/filter-statistics items",
    "pages/group.js Config by broker": "GET /v1/groups/{group} configs",
    "pages/group.js Lag by queue": "GET /v1/groups/{group}/lag items",
    "pages/group.js Lag by topic": "GET /v1/groups/{group}/lag topics",
    "pages/group.js Consumers": "GET /v1/groups/{group}/members items",
    "pages/group.js Subscriptions": "GET /v1/groups/{group}/subscriptions items.subscriptions",
    "pages/groups.js Consumer groups": "GET /v1/groups items",
    "pages/leases.js Groups that consume over HTTP": "GET /v1/leases items",
    "pages/message.js Copies": "GET /v1/messages/{id} copies",
    "pages/message.js Groups": "GET /v1/messages/{id} tracks",
    "pages/messages.js Choose a topic": "GET /v1/topics items",
    "pages/name_servers.js Name servers": "GET /v1/name-servers items",
    "pages/name_servers.js Values": "GET /v1/name-servers/values items",
    "pages/overview.js Alarms": "GET /v1/alarms items",
    "pages/overview.js Brokers": "GET /v1/overview brokers",
    "pages/overview.js Groups with the highest lag": "GET /v1/overview lagging",
    "pages/producers.js Connected producers": "GET /v1/producers items",
    "pages/spark.js Queries": "GET /v1/spark queries",
    "pages/spark.js Tables": "GET /v1/spark/tables items",
    "pages/topic.js Config by broker": "GET /v1/topics/{topic}/config items",
    "pages/topic.js Groups": "GET /v1/topics/{topic}/groups items",
    "pages/topic.js Replicas": "GET /v1/topics/{topic}/route brokers.members",
    "pages/topic.js Queues": "GET /v1/topics/{topic}/status items",
    "pages/topic.js Route": "GET /v1/topics/{topic}/route queues",
    "pages/topics.js Topics": "GET /v1/topics items",
    "pages/transactions.js Open transactions": "GET /v1/transactions items",
    "parts/decisions.js ${title}": "GET /v1/history items",
    "parts/filter_actions.js Result": f"PUT {FILTER} items",
    "parts/filter_actions.js By message": f"POST {FILTER}/trials items",
    "parts/filter_actions.js By server": f"POST {FILTER}/trials trials",
    "parts/members.js Replicas": "GET /v1/brokers/{broker} members",
    "parts/messages_table.js ${label}": "GET /v1/messages items",
    "parts/moves.js Moves": "POST /v1/groups/{group}/topics/{topic}/offsets/reset items",
    "parts/redrive.js Results": "GET /v1/dead-letters/redrives/{id} outcomes",
    "parts/redrive.js Redeliveries": "GET /v1/dead-letters/redrives items",
    "parts/running.js Assigned queues": "GET /v1/groups/{group}/members/{client}/running queues",
    "parts/running.js Rates": "GET /v1/groups/{group}/members/{client}/running rates",
    "parts/settings.js Changes": "PATCH /v1/brokers/{broker}/config changes",
    "parts/settings.js Settings": "GET /v1/brokers/{broker}/config items",
    "parts/topic_actions.js Consumer groups": "DELETE /v1/topics/{topic} groups",
    "parts/why.js Copies": f"{EXPLAIN} places",
    "parts/why.js Replicas": f"{EXPLAIN} storage.copies",
    "parts/why.js Deliveries": f"{EXPLAIN} groups.deliveries",
    "parts/why.js Consumers": f"{EXPLAIN} groups.members",
    "parts/why.js Explanation by group": f"{EXPLAIN} groups",
}
"""Script and label of a table; whose answer its rows are of, and where they lie in it."""

ADDED: Mapping[str, frozenset[str]] = {
    "pages/filter.js Versions": frozenset({"filter"}),
    "pages/group.js Subscriptions": frozenset({"client", "why"}),
    "pages/topic.js Replicas": frozenset({"broker", "cluster"}),
}
"""What the page itself adds to such rows, of the thing that they lie in."""

BY_HAND: Mapping[str, str] = {
    "pages/broker.js Metrics": "names and values of a table that the broker makes",
    "pages/message.js Properties": "names and values",
    "pages/name_servers.js Settings of name servers": "names and values",
    "pages/spark.js Rows": "its columns are those of the answer",
}
"""Tables whose rows no type of the API describes, and why."""

CONSTANT = re.compile(r"[A-Za-z_]+")
LISTED = re.compile(
    r"\b(\w+)\.(?:map|flatMap|filter|some|every|find|reduce)\(\((?:\w+, )?\{(.*?)\}"
)


@pytest.fixture(scope="module")
def scripts() -> Mapping[str, str]:
    return {
        path.relative_to(SCRIPTS).as_posix(): path.read_text()
        for path in sorted(SCRIPTS.rglob("*.js"))
    }


@pytest.fixture(scope="module")
def tables(scripts: Mapping[str, str]) -> Mapping[str, str]:
    """Script and label; the text of its columns."""
    found = [one for name, text in scripts.items() for one in tables_of(name, text)]
    assert len({name for name, _ in found}) == len(found), "one script has a label twice"
    return dict(found)


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers(described(OPERATIONS))


def test_every_table_is_matched_or_said_to_be_not(tables: Mapping[str, str]) -> None:
    assert sorted(tables) == sorted({**ROWS, **BY_HAND})


@pytest.mark.parametrize("table", ROWS)
def test_a_column_is_one_that_is_answered(
    table: str, answers: Answers, tables: Mapping[str, str], scripts: Mapping[str, str]
) -> None:
    known = {**answers.rows(ROWS[table]), **{name: {} for name in ADDED.get(table, ())}}
    script = table.partition(" ")[0]
    columns = list(columns_of(tables[table], scripts[script], scripts[SHARED]))
    assert columns
    wrong = [fault for column in columns for fault in faults(column, known, answers)]
    assert not wrong, f"{table}, rows of {ROWS[table]}: {wrong}; there are {sorted(known)}"


def test_a_column_that_no_answer_has_is_found(answers: Answers) -> None:
    """By its key, by what it takes of the row, and by what it takes of a list's things."""
    rows = answers.rows("GET /v1/leases items")
    assert list(faults('{ key: "idle_ms", cell: (row) => row.idle_ms }', rows, answers)) == [
        "idle_ms",
        "idle_ms",
    ]
    ready = '{ key: "ready", value: ({ topics }) => topics.map(({ waiting: n, topic }) => n) }'
    assert list(faults(ready, rows, answers)) == ["topics[].waiting"]
    names = answers.rows("GET /v1/spark/tables items")
    texts = '{ key: "columns", value: ({ columns }) => columns.map(({ name }) => name) }'
    assert list(faults(texts, names, answers)) == ["columns[].name"]
    button = '{ key: "leave", fixed: true, cell: ({ group }) => group }'
    assert list(faults(button, rows, answers)) == []


def faults(column: str, known: Mapping[str, Any], answers: Answers) -> Iterator[str]:
    """What this column names that its rows do not have."""
    parts = dict(properties(column))
    if not {"value", "fixed"} & set(parts):  # else its key is a name for it, and no field
        key = parts["key"].strip('"')
        if key not in known:
            yield key
    for part in ("value", "cell"):
        for name in taken(parts.get(part, "")):
            if name not in known:
                yield name
        for name, of in LISTED.findall(parts.get(part, "")):
            things = answers.things(known[name]) if known.get(name) else None
            if things is not None:
                yield from (f"{name}[].{one}" for one in names_in(of) if one not in things)


def taken(function: str) -> Iterator[str]:
    """What `(row) => … row.name …` or `({ name: here }) => …` takes of its row."""
    if whole := re.match(r"\((\w+)\) =>", function):
        yield from re.findall(rf"\b{whole[1]}\.(\w+)", function)
    elif function.startswith("({"):
        yield from names_in(function[2 : end_of(function, 1) - 1])


def names_in(pattern: str) -> list[str]:
    return [re.split(r"[:=]", one)[0].strip() for one in split(pattern)]


class Answers:
    """The types of the API's answers."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._paths = document["paths"]
        self._types = document["components"]["schemas"]

    def rows(self, place: str) -> Mapping[str, Any]:
        """The fields of what lies there: method, path, and names that lead through the answer."""
        method, path, through = place.split()
        responses = self._paths[path][method.lower()]["responses"]
        (good,) = (one for status, one in responses.items() if status.startswith("2"))
        found = self.things(good["content"]["application/json"]["schema"])
        for name in through.split("."):
            found = self.things(found[name])
        assert found, place
        return found

    def things(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of an object, or of what is in a list of them; of null or one, of the one."""
        if "$ref" in schema:
            return self.things(self._types[schema["$ref"].rpartition("/")[2]])
        if "items" in schema:
            return self.things(schema["items"])
        for one in schema.get("anyOf", ()):
            if one != {"type": "null"}:
                return self.things(one)
        return dict(schema.get("properties", {}))


# -- so much of JavaScript as tables need ----------------------------------------------------------


def tables_of(script: str, text: str) -> Iterator[tuple[str, str]]:
    for tag in re.finditer(r"<\$\{Table\}", text):
        given = dict(attributes(text, tag.end()))
        label = given["label"].strip('"')
        yield f"{script} {label}", given["columns"][2:-1].strip()


def attributes(text: str, at: int) -> Iterator[tuple[str, str]]:
    """`name="text"`, `name=${…}` and `name`, up to the end of the tag."""
    while not text.startswith("/>", at):
        if text[at].isspace():
            at += 1
            continue
        name = re.compile(r"\w+").match(text, at)
        assert name, text[at : at + 40]
        at = begin = name.end()
        if text[at] == "=":
            at = end_of(text, at + 1 + (text[at + 1] == "$"))
        yield name[0], text[begin + 1 : at]


def columns_of(given: str, script: str, shared: str) -> Iterator[str]:
    """Each column as the text of an object, whether it stands there or has a name elsewhere."""
    if not given.startswith("["):
        name = CONSTANT.match(given)
        assert name, given
        begin = re.search(rf"const {name[0]} = \[|function {name[0]}\(.*\) {{\s+return \[", script)
        assert begin, f"no columns are called {name[0]}"
        given = script[begin.end() - 1 : end_of(script, begin.end() - 1)]
    for one in split(given[1:-1]):
        if one.startswith("{"):
            yield one
            continue
        found = [
            text[begin.end() - 1 : end_of(text, begin.end() - 1)]
            for text in (script, shared)
            if (begin := re.search(rf"const {one} = {{", text))
        ]
        assert found, f"no column is called {one}"
        yield found[0]


def properties(object_: str) -> Iterator[tuple[str, str]]:
    for one in split(object_[1:-1]):
        name, _, value = one.partition(":")
        yield name.strip(), value.strip()


def split(text: str) -> Sequence[str]:
    """At commas that stand in nothing."""
    found, begin, at = [], 0, 0
    while at < len(text):
        if text[at] in "([{\"'`":
            at = end_of(text, at)
            continue
        if text[at] == ",":
            found.append(text[begin:at])
            begin = at + 1
        at += 1
    return [one.strip() for one in (*found, text[begin:]) if one.strip()]


def end_of(text: str, at: int) -> int:
    """Behind the bracket, text or template that begins here."""
    opening = text[at]
    assert opening in "([{\"'`", text[at : at + 40]
    at += 1
    while text[at] not in (opening if opening in "\"'`" else ")]}"):
        if text[at] == "\\":
            at += 2
        elif opening == "`":
            at = end_of(text, at + 1) if text.startswith("${", at) else at + 1
        elif opening in "\"'":
            at += 1
        elif text.startswith("//", at):
            at = text.index("\n", at)
        else:
            at = end_of(text, at) if text[at] in "([{\"'`" else at + 1
    return at + 1
