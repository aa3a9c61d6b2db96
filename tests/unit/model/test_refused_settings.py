"""Keys that promise safety: refused where they promise something, accepted where they do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.model.refused_settings import REFUSED, promises_nothing


@pytest.mark.parametrize("key", REFUSED)
def test_each_is_accepted_as_rocketmq_has_it_by_default_and_refused_otherwise(key: str) -> None:
    assert promises_nothing(key, REFUSED[key].usual[0])
    with pytest.raises(ConfigError, match=f"{key}=.* is refused: Kourou ") as caught:
        promises_nothing(key, "something")
    assert caught.value.hint.startswith("remove the key")


def test_the_sentence_says_what_is_not_done_and_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        promises_nothing("aclEnable", " TRUE ")
    assert str(caught.value) == (
        "aclEnable=TRUE is refused: Kourou does not need it: a broker decides requests as soon as "
        "it has users, and name servers and clients decide none (remove the key, or write "
        "aclEnable=false; write it into a broker's file, or create users with `kourou user create "
        "NAME --admin`)"
    )


@pytest.mark.parametrize("key", REFUSED)
def test_the_settings_that_it_recommends_exist(key: str) -> None:
    page = Path(__file__).resolve().parents[3] / "docs/reference/settings.md"
    known = re.findall(r"^\| `([\w.]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"\btls\.[\w.]*\w|\b[a-z]+[A-Z]\w*", REFUSED[key].instead)
    assert [name for name in named if name not in known] == []


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("tls.enable", "does not use TLS in its own clients"),
        ("tls.client.trustCertPath", "does not use TLS in its own clients"),
        ("tls.server.mode", "does not take it here: services read it at their start"),
        ("tls.server.keyPath", "does not take it here: services read TLS at their start"),
        ("tls.server.keyPassword", "takes no password in a setting"),
        ("tls.test.mode.enable", "never makes a self-signed certificate"),
    ],
)
def test_whatever_is_said_of_tls_elsewhere_is_refused(key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"is refused: Kourou .*{why}"):
        promises_nothing(key, "permissive")


@pytest.mark.parametrize("key", ["tls.server.keyPassword", "secretKey"])
def test_no_secret_is_repeated(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        promises_nothing(key, "hunter2")
    assert "hunter2" not in str(caught.value)


def test_other_keys_are_none_of_its_business() -> None:
    assert not promises_nothing("brokerName", "x")
    assert not promises_nothing("sendMessageThreadPoolNums", "16")
