"""What happens before a service's life begins."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from kourou.errors import ConfigError
from kourou.service import entry
from kourou.service.command_line import Arguments, parse_arguments
from kourou.service.entry import run_from_arguments
from kourou.service.process_keys import ProcessKeys
from kourou.settings.declaration import setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessKeys):
    inert_keys: ClassVar = frozenset({"highSpeedMode"})

    count: int = setting(1, "someCount", "How many", low=0)


class Sample:
    name = "sample"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        logging.getLogger("kourou.test").info("count is %d", self.settings.count)
        fail(ZeroDivisionError())

    async def serve(self) -> Mapping[str, str]:
        return {}

    async def drain(self) -> None: ...

    async def stop(self) -> None: ...

    def open_because(self) -> str:
        return ""


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    """The root logger as pytest left it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def run(*argv: str) -> int:
    return run_from_arguments("sample", "A sample.", argv, Settings, Sample)


def test_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--set", "someCount=-1") == 2
    assert capsys.readouterr().err.startswith("kourou sample: someCount='-1' is refused")


def test_printing_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-p", "--set", "someCount=7") == 0
    assert "someCount=7\n" in capsys.readouterr().out


def test_it_runs_with_its_settings_and_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sample.conf"
    file.write_text("highSpeedMode=true\nsomeCount=5\nlogFormat=json\n")
    assert run("-c", str(file)) == 70
    err = capsys.readouterr().err
    assert '"message": "count is 5"' in err
    assert '"event": "setting-doubted"' in err
    assert "highSpeedMode is a setting of RocketMQ that does nothing" in err


@pytest.mark.parametrize("place", ["missing/ready", "file/ready"])
def test_a_ready_file_that_cannot_be_written_is_refused_before_anything_starts(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run("--ready-file", str(tmp_path / place)) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"kourou sample: --ready-file {tmp_path / place} cannot be written: ")
    assert printed.count("\n") == 1


def test_looking_whether_a_ready_file_can_be_written_leaves_none(tmp_path: Path) -> None:
    assert run("--ready-file", str(tmp_path / "ready"), "-p") == 0
    assert list(tmp_path.iterdir()) == []


def test_settings_that_cannot_be_printed_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(entry, "output_trouble", lambda: full)
    assert run("-p") == 75
    printed = capsys.readouterr().err
    assert printed == "kourou sample: cannot write output: No space left on device\n"


# -- arguments as RocketMQ's scripts take them, and one sentence for a wrong one -------------------


def parse(*argv: str) -> Arguments:
    return parse_arguments("kourou broker", "A broker.", argv)


def test_everything_at_once() -> None:
    found = parse(
        *("-c", "b.conf", "-n", "h:1;h:2", "--ready-file", "r.json"),
        *("--set", "a=1", "--set", "b = x=y", "--insecure-network"),
    )
    assert found == Arguments(
        Path("b.conf"),
        {"a": "1", "b": " x=y", "namesrvAddr": "h:1;h:2", "insecureNetwork": "true"},
        print_settings=False,
        print_explained=False,
        ready_file=Path("r.json"),
    )


def test_printing() -> None:
    assert (parse("-p").print_settings, parse("-p").print_explained) == (True, False)
    assert (parse("-m").print_settings, parse("-m").print_explained) == (True, True)


@pytest.mark.parametrize(
    "argv", [("--nope",), ("-c",), ("extra",), ("--set", "a"), ("--read", "x")]
)
def test_wrong_ones(argv: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)


def test_letters_of_settings_that_a_service_lacks_are_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConfigError, match="-n h:1"):
        parse_arguments("kourou filter-server", "", ("-n", "h:1"), keys={"unsafeNoSandbox"})
    with pytest.raises(ConfigError, match="--unsafe-no-sandbox"):
        parse_arguments("kourou broker", "", ("--unsafe-no-sandbox",), keys={"namesrvAddr"})
    found = parse_arguments("kourou broker", "", ("-n", "h:1"), keys={"namesrvAddr"})
    assert found.settings == {"namesrvAddr": "h:1"}
    with pytest.raises(SystemExit):
        parse_arguments("kourou filter-server", "", ("--help",), keys={"unsafeNoSandbox"})
    shown = capsys.readouterr().out
    assert "--unsafe-no-sandbox" in shown
    assert "name servers" not in shown
