"""Where settings come from, what is refused, and what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest

from kourou.errors import ConfigError
from kourou.model.limits import SETTINGS_FILE_BYTES_MAX
from kourou.settings.declaration import SAME, environment_name, setting
from kourou.settings.registry import SettingsRegistry
from kourou.settings.sources import (
    LoadedSettings,
    as_entries,
    is_open_to_all,
    load_settings,
    render,
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    inert_keys: ClassVar = frozenset({"highSpeedMode", "sendMessageThreadPoolNums"})

    port: int = setting(1, "listenPort", "A port", low=0, high=99, seed=SAME, rocketmq="2")
    name: str = setting("n", "brokerName", "A name", dynamic=True)
    where: str | None = setting(None, "namesrvAddr", "An address", environment="NAMESRV_ADDR")
    size: int = setting(
        5, "mappedFileSizeCommitLog", "A size", unit="bytes", aliases=("mapedFileSizeCommitLog",)
    )


def load(
    arguments: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> LoadedSettings[Sample]:
    return load_settings(
        Sample,
        arguments=arguments or {},
        environment=environment or {},
        file=file,
    )


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str) -> Path:
        path = tmp_path / "broker.conf"
        path.write_text(text, encoding="utf-8")
        return path

    return make


def test_every_source_beats_the_next(write: Write) -> None:
    file = write("listenPort=3\nbrokerName=file\nmapedFileSizeCommitLog=7\n")
    environment = {
        "KOUROU_BROKER_NAME": "environment",
        "KOUROU_LISTEN_PORT": "4",
        "NAMESRV_ADDR": "h:1",
    }
    loaded = load({"listenPort": "5"}, environment, file)
    assert loaded.settings == Sample(port=5, name="environment", where="h:1", size=7)
    assert load().settings == Sample()


def test_an_inert_key_is_accepted_and_said_so_once(write: Write) -> None:
    loaded = load(file=write("highSpeedMode=true\nlistenPort=3\n"))
    assert loaded.settings.port == 3
    assert len(loaded.warnings) == 1
    assert loaded.warnings[0].startswith("highSpeedMode is a setting of RocketMQ that does nothing")


@pytest.mark.parametrize("key", ["aclEnable", "tls.server.mode"])
def test_what_promises_safety_is_refused_from_every_source(write: Write, key: str) -> None:
    file = write(f"{key}=true\n")
    variable = environment_name(key)
    with pytest.raises(ConfigError, match=f"in {file}: {key}=true is refused: Kourou does not"):
        load(file=file)
    with pytest.raises(ConfigError, match=f"on the command line: {key}=true is refused"):
        load({key: "true"})
    with pytest.raises(ConfigError, match=f"in the environment: {key}=true is refused"):
        load({}, {variable: "true"})


def test_what_promises_nothing_is_accepted_without_a_word(write: Write) -> None:
    file = write("aclEnable=false\nuseTLS=FALSE\ntls.enable=false\n")
    assert load({"inSyncReplicas": "1"}, {"KOUROU_ACL_ENABLE": "false"}, file).warnings == ()


def test_a_misspelt_variable_is_pointed_out_and_others_are_left_alone() -> None:
    environment = {"KOUROU_BROKER_NAM": "x", "KOUROU_VENV": "y", "KOUROU_LOG_LEVEL": "INFO"}
    (warning,) = load({}, environment).warnings
    assert warning == (
        "environment variable KOUROU_BROKER_NAM is not a setting; did you mean KOUROU_BROKER_NAME?"
    )


def test_an_unknown_key_names_the_nearest(write: Write) -> None:
    with pytest.raises(
        ConfigError, match=r"setting 'listenport' not found \(did you mean listenPort"
    ):
        load(file=write("listenport=3\n"))
    with pytest.raises(ConfigError, match="print all with -m"):
        load({"zzzzz": "1"})


@pytest.mark.parametrize(
    ("arguments", "environment", "text", "where"),
    [
        ({"listenPort": "100"}, {}, "", "on the command line"),
        ({}, {"KOUROU_LISTEN_PORT": "x"}, "", "in the environment"),
        ({}, {}, "listenPort=-1", "broker.conf"),
    ],
)
def test_a_bad_value_says_where_it_stands(
    write: Write, arguments: dict[str, str], environment: dict[str, str], text: str, where: str
) -> None:
    with pytest.raises(ConfigError, match=where) as caught:
        load(arguments, environment, write(text))
    assert "0 to 99" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path, write: Write) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        load(file=tmp_path / "missing.conf")
    with pytest.raises(ConfigError, match="cannot read"):
        load(file=tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"a=\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text at byte 2"):
        load(file=binary)
    with pytest.raises(ConfigError, match="larger than"):
        load(file=write("#" * (SETTINGS_FILE_BYTES_MAX + 1)))
    with pytest.raises(ConfigError, match=r"broker\.conf: line 1: \\u must be"):
        load(file=write("a=\\u12"))


@pytest.mark.feature("F355", "F356", "F357")
@pytest.mark.parametrize("explained", [True, False])
def test_what_is_printed_is_read_back(write: Write, explained: bool) -> None:
    settings = Sample(port=9, name=" odd = name # \\ ", where=None)
    text = render(settings, explained=explained)
    assert load(file=write(text)).settings == Sample(port=9, name="odd = name # \\", where=None)
    assert ("allowed: 0 to 99" in text) is explained
    assert text.count("\nbrokerName=") == 1


@pytest.mark.parametrize("secret", ["secret", "se:cret", "sec@ret", "sec%2Fret", "sec/ret"])
def test_a_password_in_a_url_is_never_shown(secret: str) -> None:
    """Not in what is printed, not on the pages, not to whoever asks for the configuration."""
    where = f"postgresql://kourou:{secret}@db:5432/kourou?a=b"
    sample = Sample(where=where)
    shown = "postgresql://kourou:***@db:5432/kourou?a=b"
    assert as_entries(sample)["namesrvAddr"] == shown
    specs = {one.key: one for one in SettingsRegistry.of(sample)}
    assert specs["namesrvAddr"].default == shown
    for text in (render(sample), render(sample, explained=False)):
        assert secret not in text
    without = "tcp://10.0.0.1:9876;tcp://user@10.0.0.2:9876"
    assert as_entries(Sample(where=without))["namesrvAddr"] == without
    assert sample.where == where
    query = "postgresql://kourou@db/kourou?password={}&a=b&sslpassword={}"
    in_query = Sample(where=query.format(secret, secret))
    assert as_entries(in_query)["namesrvAddr"] == query.format("***", "***")


def test_the_engine_gets_every_key_with_its_range() -> None:
    specs = {one.key: one for one in SettingsRegistry.of(Sample())}
    assert list(specs) == list(as_entries(Sample()))
    assert (specs["listenPort"].low, specs["listenPort"].high) == (0, 99)
    assert [name for name, spec in specs.items() if spec.dynamic] == ["brokerName"]
    assert specs["namesrvAddr"].default == ""


# -- files with secrets ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WithSecret:
    key: Path | None = setting(None, "curveKeyFile", "A key", secret_file=True)
    other: Path | None = setting(None, "kvConfigPath", "No secret")


@pytest.fixture
def entered_by_all() -> Iterator[Path]:
    """A folder that every user of the machine can enter."""
    with TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(0o600, False), (0o640, False), (0o604, True), (0o602, True), (0o444, True), (0o000, False)],
)
def test_a_start_warns_of_a_secret_that_all_users_can_read(
    entered_by_all: Path, mode: int, expected: bool
) -> None:
    file = entered_by_all / "a.key_secret"
    file.write_text("secret")
    file.chmod(mode)
    assert is_open_to_all(file) is expected
    given = {"curveKeyFile": str(file), "kvConfigPath": str(file)}
    warnings = load_settings(WithSecret, arguments=given, environment={}).warnings
    assert len(warnings) == expected
    assert all(text.startswith(f"curveKeyFile={file} is open to all") for text in warnings)
    entered_by_all.chmod(0o750)
    assert not is_open_to_all(file), "the folder protects it"
    assert not is_open_to_all(entered_by_all / "missing")
