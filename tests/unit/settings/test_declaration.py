"""One key: its text both ways, its range, its names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.settings.declaration import SAME, Setting, environment_name, setting, settings_of


class Flavour(StrEnum):
    SWEET = "SWEET"
    SOUR = "SOUR"


@dataclass(frozen=True, kw_only=True)
class Sample:
    count: int = setting(3, "someCount", "How many", unit="ms", low=1, high=10, rocketmq=SAME)
    wanted: bool = setting(True, "isWanted", "Whether", seed="false")
    name: str = setting("x", "brokerIP1", "Who", choices=("x", "y"))
    place: Path = setting(lambda: Path("/tmp"), "storePath", "Where", default_text="$HOME")
    maybe: int | None = setting(None, "maybeInt", "Perhaps", rocketmq=SAME)
    flavour: Flavour = setting(Flavour.SWEET, "flavour", "Which", rocketmq=SAME)
    hours: str = setting("04", "hours", "Two digits", pattern=r"[0-9]{2}")


KEYS: dict[str, Setting] = {one.name: one for one in settings_of(Sample)}


@pytest.mark.parametrize(
    ("attribute", "text", "value"),
    [
        ("count", "1", 1),
        ("count", " 10 ", 10),
        ("wanted", "TRUE", True),
        ("wanted", "false", False),
        ("name", "y", "y"),
        ("place", "/a/b", Path("/a/b")),
        ("place", "~/a", Path.home() / "a"),
        ("place", "$HOME/a", Path.home() / "a"),
        ("place", "${user.home}/a", Path.home() / "a"),
        ("maybe", "", None),
        ("maybe", "-7", -7),
        ("flavour", "SOUR", Flavour.SOUR),
        ("hours", "16", "16"),
    ],
)
def test_texts_that_are_values(attribute: str, text: str, value: object) -> None:
    one = KEYS[attribute]
    parsed = one.parse(text)
    assert parsed == value
    assert type(parsed) is type(value) or isinstance(value, Path)
    assert one.parse(one.format(parsed)) == parsed


@pytest.mark.parametrize(
    ("attribute", "text", "wanted"),
    [
        ("count", "0", "1 to 10, in ms"),
        ("hours", "4", "Two digits"),
        ("hours", "044", "Two digits"),
        ("count", "11", "1 to 10"),
        ("count", "", "a whole number"),
        ("count", "1.5", "a whole number"),
        ("count", "²", "a whole number"),
        ("count", "9" * 5_000, "a whole number"),
        ("wanted", "yes", "true, false"),
        ("name", "z", "x, y"),
        ("flavour", "sour", "SWEET, SOUR"),
        ("place", "/a\nb=c", "control character"),
    ],
)
def test_texts_that_are_none(attribute: str, text: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted) as caught:
        KEYS[attribute].parse(text)
    assert KEYS[attribute].key in str(caught.value)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("brokerName", "KOUROU_BROKER_NAME"),
        ("brokerIP1", "KOUROU_BROKER_IP1"),
        ("eventStoreUrl", "KOUROU_EVENT_STORE_URL"),
        ("listenPort", "KOUROU_LISTEN_PORT"),
        ("autoCreateTopicEnable", "KOUROU_AUTO_CREATE_TOPIC_ENABLE"),
        ("clientIP", "KOUROU_CLIENT_IP"),
        ("retryAnotherBrokerWhenNotStoreOK", "KOUROU_RETRY_ANOTHER_BROKER_WHEN_NOT_STORE_OK"),
        ("tls.server.mode", "KOUROU_TLS_SERVER_MODE"),
    ],
)
def test_the_name_in_the_environment(key: str, name: str) -> None:
    assert Setting(key, "").environment_name == name
    assert environment_name(key) == name
