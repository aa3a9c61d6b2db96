"""Refused requests in a file: whole lines first, then exact counts, bounded."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from io import FileIO
from pathlib import Path

import msgspec
import pytest

from kourou.authorization.audit import AccessDecided, AuditQuestion
from kourou.model.limits import (
    ACCESS_REFUSALS_MAX,
    AUDIT_USER_KINDS_MAX,
    AUDIT_USER_LINES_MAX,
)
from kourou.protocol.bodies.access_bodies import AuditDecision, AuditLine, decode_audit
from kourou.service import audit_log
from kourou.service.audit_log import CHANGES, REFUSALS, WHOLE_LINES, AuditLog, search

MINUTE_MS = 60_000


def refused(user: str = "eve", at_ms: int = 0, **fields: object) -> AccessDecided:
    usual = {
        "source": "10.0.0.1",
        "request": "SendMessage",
        "need": "Pub on Topic:a",
        "by": "no policy allows it",
        "handled": False,
    }
    return AccessDecided(user=user, wall_ms=at_ms, **(usual | fields))  # type: ignore[arg-type]


def allowed(user: str = "root", at_ms: int = 0, **fields: object) -> AccessDecided:
    return refused(user, at_ms, **({"allowed": True, "handled": True} | fields))


def lines(folder: Path, files: str = "*.jsonl") -> list[AuditLine]:
    return [
        msgspec.json.decode(line, type=AuditLine)
        for file in sorted(folder.glob(files))
        for line in file.read_bytes().splitlines()
    ]


def test_the_counts_of_a_flood_are_exact_and_its_lines_few(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for number in range(1_000):
        log.record(refused(at_ms=number))
    log.record(refused("other", at_ms=5))
    log.record(refused(at_ms=MINUTE_MS))
    log.close()
    found = lines(tmp_path)
    assert sum(one.count for one in found if one.user == "eve") == 1_001
    assert len([one for one in found if one.user == "eve"]) == WHOLE_LINES + 2
    assert [one.count for one in found if one.user == "other"] == [1]


def test_what_was_reported_together_counts_as_many(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for _ in range(WHOLE_LINES + 2):
        log.record(refused(console="console-1", count=7))
    log.close()
    found = lines(tmp_path)
    assert [one.count for one in found] == [*[7] * WHOLE_LINES, 14]
    assert {one.console for one in found} == {"console-1"}


def test_a_flood_of_refusals_hides_no_allowed_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each decision has its own lines and kinds; only refusals are logged."""
    monkeypatch.setattr(audit_log, "AUDIT_LINES_MAX", 5)
    monkeypatch.setattr(audit_log, "ACCESS_REFUSALS_MAX", 7)
    log = AuditLog(tmp_path)
    for number in range(20):
        log.record(refused(f"user-{number}"))
    log.record(allowed())
    log.record(refused("root"))
    log.close()
    found = lines(tmp_path)
    assert sum(one.count for one in found) == 22
    [change] = [one for one in found if one.decision is AuditDecision.ALLOWED]
    assert (change.user, change.count, change.handled) == ("root", 1, True)
    assert "root" not in caplog.text
    assert b"decision" not in (tmp_path / "refused-00000001.jsonl").read_bytes()
    assert b'"decision":"allowed"' in (tmp_path / "00000001.jsonl").read_bytes()


def test_a_flood_of_refusals_deletes_no_allowed_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do changes delete refusals: each has its own files, and as many of them."""
    monkeypatch.setattr(audit_log, "AUDIT_FILE_BYTES_MAX", 300)
    monkeypatch.setattr(audit_log, "AUDIT_FILES_MAX", 3)
    log = AuditLog(tmp_path)
    log.record(allowed())
    for number in range(50):
        log.record(refused(f"user-{number}"))
    assert len(list(tmp_path.glob("refused-*.jsonl"))) == 3
    assert [one.user for one in lines(tmp_path, "0*.jsonl")] == ["root"]
    for number in range(50):
        log.record(allowed(f"user-{number}"))
    log.close()
    assert len(list(tmp_path.glob("0*.jsonl"))) == 3
    assert len(list(tmp_path.glob("refused-*.jsonl"))) == 3
    assert [one.user for one in lines(tmp_path, "refused-*.jsonl")][-1] == "user-49"


def test_the_counts_of_a_minute_are_short_lines_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name of control characters has six bytes a character in JSON."""
    written: list[bytes] = []
    kept = {"write": lambda file, data: written.append(data) or FileIO.write(file, data)}
    monkeypatch.setattr(audit_log, "FileIO", type("Kept", (FileIO,), kept))
    monkeypatch.setattr(audit_log, "AUDIT_LINES_MAX", 0)
    log = AuditLog(tmp_path)
    texts = ("\0" * 256, "x" * 256, "\u20ac" * 256, '"' * 256, "\U0001f600" * 256, "short")
    for number in range(500):
        names = {"need": f"{number} {texts[number % len(texts)]}", "by": "\x1b" * 255}
        log.record(refused("\x07" * 64, **names))
    log.record(refused(at_ms=MINUTE_MS))
    [summary] = written
    assert len(summary.splitlines()) == 500
    assert max(map(len, summary.splitlines())) < 600
    assert sum(one.count for one in lines(tmp_path)) == 500
    needs = {one.need for one in lines(tmp_path)}
    assert "1 " + "x" * 126 in needs
    assert "2 " + "\u20ac" * 19 in needs
    assert "5 short" in needs
    log.close()


def test_a_user_hides_no_change_of_another_one(tmp_path: Path) -> None:
    """Allowed deletes of topics that do not exist: as many as a minute has kinds, by two tokens."""
    log = AuditLog(tmp_path)
    names = {"request": "DeleteTopicInBroker", "by": "role operator"}
    for number in range(ACCESS_REFUSALS_MAX):
        user = "eve" if number % 2 else "eve:0123456789ab"
        log.record(allowed(user, need=f"Delete on Topic:{number}", **names))
    change = {"source": "10.9.9.9", "request": "UpdateBrokerConfig", "need": "Update on Cluster:*"}
    log.record(allowed(**change))
    assert [(one.user, one.source, one.need) for one in lines(tmp_path)][-1] == (
        *("root", "10.9.9.9", "Update on Cluster:*"),
    )
    log.close()
    found = lines(tmp_path)
    assert len(found) == AUDIT_USER_KINDS_MAX + 2 + 1
    assert sum(one.count for one in found) == ACCESS_REFUSALS_MAX + 1
    together = [(one.user, one.request, one.source) for one in found if not one.need]
    assert sorted(together) == [
        ("eve", "DeleteTopicInBroker", ""),
        ("eve:0123456789ab", "DeleteTopicInBroker", ""),
    ]
    assert len([one for one in found if one.count == 1]) == AUDIT_USER_KINDS_MAX + 1


def test_many_users_together_hide_no_user_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "ACCESS_REFUSALS_MAX", 20)
    log = AuditLog(tmp_path)
    for number in range(50):
        log.record(allowed(f"user-{number}"))
    log.record(allowed(request="UpdateBrokerConfig"))
    log.close()
    found = lines(tmp_path)
    assert {one.user for one in found} == {"root", *(f"user-{number}" for number in range(50))}
    assert [one.request for one in found if one.user == "root"] == ["UpdateBrokerConfig"]
    assert sum(one.count for one in found) == 51


def test_each_minute_has_room_for_lines_of_a_user(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for minute in range(2):
        for number in range(AUDIT_USER_LINES_MAX + 1):
            log.record(allowed(at_ms=minute * MINUTE_MS, need=f"Update on Topic:{number}"))
        written = len(lines(tmp_path))
        assert written == (minute + 1) * AUDIT_USER_LINES_MAX + minute, "the last is only counted"
    log.close()
    assert sum(one.count for one in lines(tmp_path)) == 2 * (AUDIT_USER_LINES_MAX + 1)


def test_each_kind_is_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path)
    with caplog.at_level(logging.WARNING):
        for at_ms in (0, 1, 2, MINUTE_MS):
            log.record(refused(at_ms=at_ms))
            log.record(refused("mallory", at_ms, handled=True))
    log.close()
    texts = [one.getMessage() for one in caplog.records]
    assert len(texts) == 4
    assert texts[0].startswith(
        "access-refused: access refused: user='eve' source=10.0.0.1 request=SendMessage"
    )
    assert texts[1].startswith("access-refused: access would be refused: user='mallory'")


def test_more_kinds_than_the_limit_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.service.audit_log.ACCESS_REFUSALS_MAX", 3)
    log = AuditLog(tmp_path)
    for number in range(10):
        log.record(refused(f"user-{number}"))
    log.close()
    found = lines(tmp_path)
    assert [one.user for one in found] == ["user-0", "user-1", "user-2", "others"]
    assert found[-1].count == 7


def test_files_are_bounded_in_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.service.audit_log.AUDIT_FILE_BYTES_MAX", 300)
    monkeypatch.setattr("kourou.service.audit_log.AUDIT_FILES_MAX", 3)
    for start in range(2):  # a second start continues
        log = AuditLog(tmp_path)
        for number in range(20):
            log.record(refused(at_ms=(20 * start + number) * MINUTE_MS))
        log.close()
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 3
    assert all(one.stat().st_size < 600 for one in files)
    assert lines(tmp_path)[-1].at_ms == 39 * MINUTE_MS
    assert files[-1].stat().st_mode & 0o077 == 0


def test_control_characters_of_a_name_stay_in_their_line(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.record(refused('eve\n{"user":"root"}'))
    log.close()
    (line,) = lines(tmp_path)
    assert line.user == 'eve\n{"user":"root"}'


def test_a_line_names_the_console_that_sent_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.record(refused())
    log.record(refused("till", console="console-1", door="http"))
    log.close()
    assert [(one.user, one.console, one.door) for one in lines(tmp_path)] == [
        ("eve", "", ""),
        ("till", "console-1", "http"),
    ]


# -- searches -------------------------------------------------------------------------------------

ALL = AuditQuestion("", "", None, None, 1_000, None)


def found(folder: Path, **wanted: object) -> list[int]:
    """The times of the lines that a search finds, page after page."""
    question, times = replace(ALL, **wanted), []  # type: ignore[arg-type]
    while True:
        page = search(folder, question)
        lines = decode_audit(page.body)
        assert len(lines) <= question.limit
        times += [one.at_ms for one in lines]
        if page.before is None:
            return times
        question = replace(question, before=page.before)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files with 300 refusals: of eve, and every third of till, one each 10 s."""
    monkeypatch.setattr(audit_log, "AUDIT_FILE_BYTES_MAX", 15_000)
    log = AuditLog(tmp_path)
    for number in range(300):
        log.record(refused("eve" if number % 3 else "till", number * 10_000))
    log.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 3
    return tmp_path


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file as all were before, with 20 lines of both kinds, and then 80 lines, one each 10 s."""
    log = AuditLog(tmp_path)
    for number in range(20):
        log.record((allowed if number % 2 else refused)(at_ms=number * 10_000))
    log.close()
    of_before = b"".join(
        sorted(
            (msgspec.json.encode(one) + b"\n" for one in lines(tmp_path)),
            key=lambda raw: msgspec.json.decode(raw)["at_ms"],
        )
    )
    for file in tmp_path.glob("*.jsonl"):
        file.unlink()
    (tmp_path / "00000001.jsonl").write_bytes(of_before)
    monkeypatch.setattr(audit_log, "AUDIT_FILE_BYTES_MAX", 1_000)
    log = AuditLog(tmp_path)
    for number in range(20, 100):
        log.record((allowed if number % 4 == 1 else refused)(at_ms=number * 10_000))
    log.close()
    assert len(list(tmp_path.glob("refused-*.jsonl"))) > 2
    assert len(list(tmp_path.glob("0*.jsonl"))) > 2
    return tmp_path


@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize("read_bytes", [400, 4_000, 1 << 20])
def test_a_search_finds_each_line_once_the_newest_first(
    searched: Path, monkeypatch: pytest.MonkeyPatch, limit: int, read_bytes: int
) -> None:
    monkeypatch.setattr(audit_log, "AUDIT_READ_BYTES_MAX", read_bytes)
    every = [number * 10_000 for number in reversed(range(300))]
    assert found(searched, limit=limit) == every
    of_till = [at_ms for at_ms in every if at_ms % 30_000 == 0]
    assert found(searched, limit=limit, user="till") == of_till
    span = {"since_ms": 1_000_000, "until_ms": 1_100_000}
    assert found(searched, limit=limit, **span) == every[190:200]
    assert found(searched, limit=limit, request="PullMessage") == []
    for decision, expected in ((AuditDecision.ALLOWED, []), (AuditDecision.REFUSED, of_till)):
        assert found(searched, limit=limit, user="till", decision=decision) == expected


@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize("read_bytes", [1, 400, 1 << 20])
def test_a_search_merges_changes_and_refusals_by_time(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, limit: int, read_bytes: int
) -> None:
    """Files of before have both; whoever searches does not notice."""
    monkeypatch.setattr(audit_log, "AUDIT_READ_BYTES_MAX", read_bytes)
    monkeypatch.setattr(audit_log, "_CHUNK_BYTES", 64)
    every = [number * 10_000 for number in reversed(range(100))]
    changes = [one for one in every if (one // 10_000) % (4 if one >= 200_000 else 2) == 1]
    assert found(mixed, limit=limit) == every
    assert found(mixed, limit=limit, decision=AuditDecision.ALLOWED) == changes
    refusals = [one for one in every if one not in changes]
    assert found(mixed, limit=limit, decision=AuditDecision.REFUSED) == refusals


def test_what_is_written_between_two_pages_changes_neither(mixed: Path) -> None:
    page = search(mixed, replace(ALL, limit=1))
    assert page.before is not None
    log = AuditLog(mixed)
    log.record(refused(at_ms=1))
    log.record(allowed(at_ms=2))
    log.close()
    times = found(mixed, before=page.before, limit=7)
    assert times == [number * 10_000 for number in reversed(range(99))]


def test_a_page_reads_about_as_much_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "AUDIT_READ_BYTES_MAX", 10_000)
    monkeypatch.setattr(audit_log, "_CHUNK_BYTES", 1_000)
    log = AuditLog(tmp_path)
    for number in range(1_000):
        log.record(refused(at_ms=number * 10_000))
        log.record(allowed(at_ms=number * 10_000))
    log.close()
    read: list[int] = []

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            read.append(size or 0)
            return super().read(size)

    monkeypatch.setattr(Path, "open", lambda path, mode: Counted(FileIO(path, mode)))
    page = search(tmp_path, replace(ALL, user="nobody"))
    assert (page.body, page.before is None) == (b"[]", False)
    assert 10_000 <= sum(read) <= 13_000


def test_a_file_that_is_deleted_during_a_search_ends_it(
    searched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = audit_log._numbers
    kept = {series: numbers(searched, series) for series in (CHANGES, REFUSALS)}
    monkeypatch.setattr(audit_log, "_numbers", lambda _folder, series: kept[series])
    (searched / "refused-00000001.jsonl").unlink()
    times = found(searched)
    assert times == [number * 10_000 for number in reversed(range(300 - len(times), 300))]
    assert 100 < len(times) < 300


def test_a_line_that_is_not_complete_is_left_out(tmp_path: Path) -> None:
    assert found(tmp_path / "missing") == []
    log = AuditLog(tmp_path)
    log.record(refused(at_ms=7))
    log.close()
    [file] = tmp_path.glob("*.jsonl")
    with file.open("ab") as opened:
        opened.write(b'not JSON\n{"at_ms": 8')
    assert found(tmp_path) == [7]
    there = ((9, 1 << 40), (9, 1 << 40))
    assert found(tmp_path, before=there) == [7], "the file of that place was deleted"
    with file.open("ab") as opened:
        opened.write(b"\0" * 3_000)
    assert found(tmp_path) == [7]


def test_what_could_not_be_written_is_counted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "audit"
    folder.write_text("no folder")
    log = AuditLog(folder)
    for minute in range(2):
        for number in range(100):
            log.record(refused(at_ms=minute * MINUTE_MS + number))
            log.record(refused("mallory", at_ms=minute * MINUTE_MS + number))
    complaints = caplog.text.count("the audit file cannot be written")
    assert complaints == 2, "one a minute, not one a refusal"
    folder.unlink()
    log.record(refused(at_ms=2 * MINUTE_MS))
    log.close()
    found = lines(folder)
    assert sum(one.count for one in found if one.user == "eve") == 201
    assert sum(one.count for one in found if one.user == "mallory") == 200


def test_a_full_disk_leaves_no_half_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path)
    log.record(refused())
    monkeypatch.setattr("kourou.service.audit_log.FileIO", type("Full", (FileIO,), {"write": half}))
    log.close()
    log.record(refused(at_ms=1))
    log.record(refused(at_ms=2))
    monkeypatch.setattr("kourou.service.audit_log.FileIO", FileIO)
    log.record(refused(at_ms=MINUTE_MS))
    log.close()
    assert [one.count for one in lines(tmp_path)] == [1, 2, 1]


def half(file: FileIO, data: bytes) -> int:
    """What a disk does that becomes full."""
    return FileIO.write(file, data[: len(data) // 2])
