"""Commands for filters: their requests, reports and refusals, with a fake of the admin API."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.cli.admin import command as command_module
from kourou.cli.admin import filters as filter_commands
from kourou.cli.admin.filters import read_source
from kourou.cli.admin.report import Report
from kourou.cli.main import main
from kourou.client.admin.filters import FilterChangeResult
from kourou.errors import ConfigError, Rejected
from kourou.model.filter import FilterPolicy, FilterState, FilterVersion
from kourou.model.limits import FILTER_SOURCE_BYTES_MAX
from kourou.protocol.bodies.filter_bodies import FilterTrial, TriedMessage

SOURCE = "def match(message, context):\n    return True\n"
UNREACHABLE = ("-n", "127.0.0.1:1")
"""Nothing listens there: a request fails with exit code 1, not with 2."""


def version(number: int, **more: Any) -> FilterVersion:
    values = {"sha256": "ab" * 32, "author": "ann", "note": "", "uploaded_ms": 0, "size_bytes": 9}
    return FilterVersion(number, **(values | more))


LATE = FilterState(
    "till",
    "late",
    (version(1), version(2, author="\x1b[31mbob")),
    active=2,
    before_active=1,
    policy=FilterPolicy.SKIP,
    quarantined={1: "its worker died"},
    skipped=3,
    next_version=3,
)


class Filters:
    """A fake of `client.admin.filters` that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.found: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any, **how: Any) -> Any:
            self.calls.append((name, arguments, how))
            return self.found.get(name, {})

        return answer


def use(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    """Let commands use this client instead of one that is connected to a cluster."""

    def run(work: Any, **_common: object) -> int:
        work(client)
        return 0

    monkeypatch.setattr(command_module, "run_command", run)


@pytest.fixture
def filters() -> Filters:
    return Filters()


@pytest.fixture
def client(filters: Filters) -> Any:
    return SimpleNamespace(admin=SimpleNamespace(filters=filters))


def rows(report: Report) -> list[dict[str, Any]]:
    return [dict(zip(report.columns, row, strict=True)) for row in report.rows]


# -- what is typed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (None, "cannot be read"),
        (b"  \n", "is empty"),
        (b"x = '\xff'", "is not UTF-8 at byte 5"),
        (b"#" * (FILTER_SOURCE_BYTES_MAX + 1), "more than 65,536 bytes"),
    ],
)
def test_a_file_that_cannot_be_a_filter_is_refused_before_any_request(
    data: bytes | None, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "late.py"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigError, match=word):
        read_source(str(file))
    for verb in (("put",), ("try", "-t", "flights")):
        assert main(["admin", "filter", *verb, str(file), "-g", "till", *UNREACHABLE]) == 2
        assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["list", "-x"], "-x"),
        (["show", "-g", "till"], "filter"),
        (["show", "-g", "till", "-f", "late", "-v", "1"], "add -s"),
        (["enable", "-g", "till", "-f", "late", "-v", "0"], "--version"),
        (["disable", "-g", "till", "-f", "two words"], "two words"),
        (["policy", "-g", "till", "-f", "late", "-p", "perhaps"], "hold, skip, pass"),
        (["try", "-g", "till", "-t", "flights"], "FILE"),
        (["try", "-g", "till", "-t", "flights", "-f", "late", "-c", "1025"], "1024"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_wrong_usage_is_found_here(
    words: list[str],
    word: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    client: Any,
) -> None:
    use(monkeypatch, client)
    assert main(["admin", "filter", *words]) == 2
    assert word in capsys.readouterr().err


def test_the_default_author_is_the_current_user(
    tmp_path: Path, client: Any, filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "late.py"
    file.write_text(SOURCE)
    filters.found["put"] = {"broker-a": FilterChangeResult(1, 1, created=True)}
    use(monkeypatch, client)
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    monkeypatch.setattr("socket.gethostname", lambda: "till-7")
    assert main(["admin", "filter", "put", str(file), "-g", "till", "--note", "n"]) == 0
    [(verb, arguments, how)] = filters.calls
    assert (verb, arguments) == ("put", ("till", "late", SOURCE))
    assert how == {
        "note": "n",
        "author": "ann@till-7",
        "enable": True,
        "broker": None,
        "cluster": None,
    }

    def unknown() -> str:
        raise KeyError("uid 10002")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert filter_commands.current_user() == "somebody@till-7"


# -- what is shown --------------------------------------------------------------------------------


def test_the_list_says_what_runs(client: Any, filters: Filters) -> None:
    off = FilterState("shop", "big", (version(1),))
    caught = FilterState("shop", "odd", (version(4),), active=4, quarantined={4: "it lied"})
    filters.found["list"] = {"broker-b": (LATE,), "broker-a": (caught, off)}
    filters.found["servers"] = {"broker-b": ("h:20915", "h:20916"), "broker-a": ()}
    report = filter_commands.filter_list(client)
    assert [(row["broker"], row["filter"], row["state"]) for row in rows(report)] == [
        ("broker-a", "big", "disabled"),
        ("broker-a", "odd", "quarantined"),
        ("broker-b", "late", "runs"),
    ]
    assert report.remarks == [
        "filter servers of broker-a: no filter server is online: groups with a filter wait at "
        "this broker",
        "filter servers of broker-b: h:20915, h:20916",
    ]
    late = rows(report)[2]
    assert (late["versions"], late["newest"], late["active"], late["policy"]) == (2, 2, 2, "skip")
    filters.found = {}
    assert filter_commands.filter_list(client, group="none").remarks == ["no filters"]


def test_one_filter_is_shown_with_its_quarantine_and_its_history(
    client: Any, filters: Filters
) -> None:
    filters.found["list"] = {"broker-a": (LATE,), "broker-b": ()}
    report = filter_commands.filter_show(client, "till", "late")
    first, second = rows(report)
    assert (first["active"], first["quarantined"]) == (False, True)
    assert (second["active"], second["quarantined"]) == (True, False)
    assert second["author"] == "\x1b[31mbob", "JSON has the text itself"
    assert r"  \x1b[31mbob  " in report.lines()[2], "a terminal is not commanded by it"
    assert report.remarks == [
        "broker-a: runs, policy skip, 3 skipped",
        "broker-a: version 1 is quarantined: its worker died",
        "who decided what: kourou history filter/till/late",
    ]
    filters.found["list"] = {"broker-a": ()}
    with pytest.raises(Rejected, match="group till has no filter 'late'"):
        filter_commands.filter_show(client, "till", "late")


def test_an_upload_that_does_not_run_is_reported(
    client: Any, filters: Filters, tmp_path: Path
) -> None:
    file = tmp_path / "late.py"
    file.write_text(SOURCE)

    def remarks(*, disabled: bool = False) -> list[str]:
        report = filter_commands.filter_put(client, str(file), "till", disabled=disabled)
        return report.remarks

    filters.found["put"] = {"broker-a": FilterChangeResult(2, 1, created=True)}
    assert "version 2 is disabled; `kourou admin filter enable`" in remarks()[0]
    filters.found["put"] = {"broker-a": FilterChangeResult(2, 1, quarantined="it lied")}
    assert "version 2 is disabled (quarantine: it lied)" in remarks()[0]
    assert remarks(disabled=True) == []


# -- trying and measuring -------------------------------------------------------------------------


def trial(**more: Any) -> FilterTrial:
    messages = [
        TriedMessage(queue_id=0, offset=7, message_id="A", passed=True),
        TriedMessage(queue_id=1, offset=9, passed=False),
    ]
    values = {"topic": "flights", "messages": messages, "seen": 2, "passed": 1, "micros": 8}
    return FilterTrial(**(values | {"start_micros": 4_200} | more))


@pytest.mark.feature("F242")
def test_a_dry_run_shows_results_and_cost(client: Any, filters: Filters) -> None:
    filters.found["try_out"] = {"127.0.0.1:20915": trial()}
    report = filter_commands.filter_try(client, "till", "flights", name="late", version=2, count=2)
    how = {"source": "", "version": 2, "count": 2, "broker": None}
    assert filters.calls == [("try_out", ("till", "late", "flights"), how)]
    assert [row["verdict"] for row in rows(report)] == ["passes", "filtered out"]
    assert report.remarks == [
        "127.0.0.1:20915: 1 of 2 pass, 0 failed; 4.0 µs a message, worker started in 4.2 ms"
    ]
    assert not report.failed


def test_a_dry_run_that_failed_fails(client: Any, filters: Filters) -> None:
    died = trial(failure="died", reason="SIGSEGV")
    one = TriedMessage(queue_id=0, offset=7, reason="KeyError: 'x'")
    raised = trial(messages=[one], failed=1, passed=0, seen=1)
    for found in (died, raised):
        filters.found["try_out"] = {"127.0.0.1:20915": found}
        report = filter_commands.filter_try(client, "till", "t", name="late")
        assert report.failed
    assert rows(report)[0]["verdict"] == "filter failed"
    assert rows(report)[0]["reason"] == "KeyError: 'x'"
    filters.found["try_out"] = {}
    with pytest.raises(Rejected, match="no filter server"):
        filter_commands.filter_try(client, "till", "t", name="late")


def test_another_policy_does_not_end_a_quarantine_and_says_so(
    client: Any, filters: Filters
) -> None:
    filters.found["set_policy"] = {
        "broker-a": FilterChangeResult(2, 2, quarantined="3 \x1b strikes")
    }

    def remarks(policy: str) -> list[str]:
        return filter_commands.filter_policy(client, "till", "late", policy).remarks

    meaning, waits = remarks("skip")
    assert "it is skipped" in meaning
    assert waits.startswith("broker-a: version 2 is quarantined (3 \\x1b strikes), so its group")
    assert waits.endswith("`kourou admin filter enable` ends the quarantine")
    assert len(remarks("pass")) == 1
    filters.found["set_policy"] = {"broker-a": FilterChangeResult(2, 2)}
    assert len(remarks("hold")) == 1
