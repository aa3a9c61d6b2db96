"""What happens before a service's life begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kourou.service.entry import run_from_arguments
from kourou.service.process_keys import ProcessKeys
from kourou.service.setting import setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessKeys):
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


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    """The root logger as pytest left it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def run(*argv: str) -> int:
    inert = frozenset({"useTLS"})
    return run_from_arguments("sample", "A sample.", argv, Settings, inert, Sample)


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
    file.write_text("useTLS=true\nsomeCount=5\nlogFormat=json\n")
    assert run("-c", str(file)) == 70
    err = capsys.readouterr().err
    assert '"event": "count is 5"' in err
    assert "useTLS is a setting of RocketMQ that does nothing" in err
