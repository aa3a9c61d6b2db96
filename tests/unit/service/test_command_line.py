"""Arguments as RocketMQ's scripts take them, and one sentence for a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.service.command_line import Arguments, parse_arguments


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
