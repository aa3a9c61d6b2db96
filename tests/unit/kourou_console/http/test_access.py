"""Who may ask what: tokens where there are some, and else nobody's web page but ours."""

from __future__ import annotations

import hashlib
import os
from ipaddress import ip_network
from pathlib import Path

import pytest

from kourou.errors import ConfigError, NoPermission
from kourou.operations import Right
from kourou_console.http.access import (
    LOOK_MS,
    AccessControl,
    Tokens,
    read_tokens,
    source_of,
)
from kourou_console.http.call import ANYBODY
from kourou_console.http.responses import HttpError
from kourou_rigs.console import ConsoleHere

READ, WRITE, ADMIN = "read-token-0123456789", "write-token-0123456789", "admin-token-0123456789"


class Time:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def written(file: Path, *entries: tuple[str, str, str]) -> Path:
    """A file with (name, right, token)."""
    file.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nright = "{right}"\ntoken = "{token}"\n'
            for name, right, token in entries
        )
    )
    return file


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "tokens.toml", ("ann", "read", READ), ("bob", "write", WRITE))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", f"Basic {READ}", "Bearer x"]
)
def test_without_a_known_one_it_is_401(file, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    with pytest.raises(HttpError) as refused:
        AccessControl(Tokens(file, Time())).caller("GET", headers)
    assert refused.value.status == 401


def test_every_token_is_compared(file, monkeypatch):
    from kourou_console.http import access as module

    compared = []
    real = module.hmac.compare_digest
    monkeypatch.setattr(
        module.hmac, "compare_digest", lambda a, b: compared.append(a) or real(a, b)
    )
    AccessControl(Tokens(file, Time())).caller("GET", bearer(READ))
    assert len(compared) == 2, "also those behind the one that fits"


def test_a_digest_does_for_a_token(tmp_path):
    file = tmp_path / "tokens.toml"
    digest = hashlib.sha256(READ.encode()).hexdigest()
    file.write_text(f'[[token]]\nname = "ann"\nright = "admin"\nsha256 = "{digest}"\n')
    assert AccessControl(Tokens(file, Time())).caller("GET", bearer(READ)).right is Right.ADMIN


def test_a_changed_file_is_read_again(file):
    time = Time()
    access = AccessControl(Tokens(file, time))
    written(file, ("ann", "admin", READ))
    os.utime(file, ns=(1, 1))
    assert access.caller("GET", bearer(READ)).right is Right.READ, "not looked at every time"
    time.now_ms += LOOK_MS
    assert access.caller("GET", bearer(READ)).right is Right.ADMIN
    with pytest.raises(HttpError):
        access.caller("GET", bearer(WRITE))


@pytest.mark.parametrize("spoil", [lambda f: f.unlink(), lambda f: f.write_text("no toml [")])
def test_a_file_that_is_broken_later_changes_nothing(file, spoil, caplog):
    time = Time()
    access = AccessControl(Tokens(file, time))
    spoil(file)
    for _ in range(2):
        time.now_ms += LOOK_MS
        assert access.caller("GET", bearer(READ)).name == "ann"
    assert "the tokens were not reloaded" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "token"),
        ("token = []", "0 tokens"),
        ('[[token]]\nname = "a"\nright = "all"\ntoken = "0123456789abcdef"', "right"),
        ('[[token]]\nname = "a"\nright = "read"\ntoken = "short-secret"', "16 characters"),
        ('[[token]]\nname = "a"\nright = "read"', "one of them"),
        ('[[token]]\nname = "a"\nright = "read"\nsha256 = "xyz"', "64 hex digits"),
        ('[[token]]\nname = ""\nright = "read"\ntoken = "0123456789abcdef"', "name"),
        ('[[token]]\nname = "a"\nright = "read"\ntoken = "0123456789abcdef"\nx = 1', "x"),
        ('[[token]]\nname = "a"\ntoken = "secret-secret-secret" oops', "line"),
    ],
)
def test_a_wrong_file_is_refused_and_shows_no_token(tmp_path, text, said):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as wrong:
        read_tokens(file)
    assert said in str(wrong.value)
    assert "secret" not in str(wrong.value)


def test_the_same_token_twice_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="twice"):
        read_tokens(written(tmp_path / "t", ("ann", "read", READ), ("bob", "admin", READ)))


# -- without tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "10.0.0.7", "Console:80"]
)
def test_an_address_or_a_name_of_ours_is_let_in(host):
    assert AccessControl(None, ["console"]).caller("POST", {"Host": host}) is ANYBODY


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::1", "console"])
def test_a_name_that_points_here_is_not(host):
    with pytest.raises(NoPermission):
        AccessControl(None).caller("GET", {"Host": host})


@pytest.mark.parametrize(
    ("origin", "let_in"),
    [
        ("http://localhost:8080", True),
        ("http://localhost:9090", False),
        ("http://evil.example", False),
        ("null", False),
        ("file://", False),
    ],
)
def test_a_page_of_ours_may_and_another_may_not(origin, let_in):
    headers = {"Host": "localhost:8080", "Origin": origin}
    if let_in:
        assert AccessControl(None).caller("POST", headers) is ANYBODY
    else:
        with pytest.raises(NoPermission) as refused:
            AccessControl(None).caller("GET", headers)
        assert refused.value.hint.startswith("use the gateway's own pages")


def test_another_site_may_look_and_change_nothing():
    headers = {"Host": "localhost", "Sec-Fetch-Site": "cross-site"}
    assert AccessControl(None).caller("GET", headers) is ANYBODY
    with pytest.raises(NoPermission) as refused:
        AccessControl(None).caller("POST", headers)
    assert refused.value.hint.startswith("use the gateway's own pages")


# -- over HTTP ------------------------------------------------------------------------------------


def test_tokens_over_http_and_rights_that_include_those_before_them(cluster, tmp_path):
    file = written(
        tmp_path / "tokens.toml",
        *(("ann", "read", READ), ("bob", "write", WRITE), ("eve", "admin", ADMIN)),
    )
    with ConsoleHere(cluster, token_file=file) as console:
        refused = console.get("/v1/me")
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert console.get("/").status != 401, "pages need no token"
        assert console.get("/readyz").status == 200
        me = console.get("/v1/me", headers=bearer(WRITE)).json
        assert (me["name"], me["rights"], me["token_required"]) == ("bob", ["read", "write"], True)
        message = "/v1/topics/orders/messages"
        assert console.post(message, body=b"x", headers=bearer(READ)).status == 403
        assert console.post(message, body=b"x", headers=bearer(WRITE)).status == 200
        settings = {"write_queues": 1}
        assert console.put("/v1/topics/t", json=settings, headers=bearer(WRITE)).status == 403
        assert console.put("/v1/topics/t", json=settings, headers=bearer(ADMIN)).status == 200
        assert console.post(message, body=b"x", headers=bearer(ADMIN)).status == 200
        evil = {**bearer(READ), "Host": "evil.example", "Origin": "http://evil.example"}
        assert console.get("/v1/me", headers=evil).status == 200, "a token is never sent by itself"


PROXIES = [ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8"), ip_network("::1/128")]


@pytest.mark.parametrize(
    ("remote", "forwarded", "source"),
    [
        ("192.0.2.7", ["203.0.113.1"], "192.0.2.7"),  # from no proxy: anyone can write it
        ("127.0.0.1", ["203.0.113.1"], "203.0.113.1"),
        ("127.0.0.1", ["1.1.1.1, 203.0.113.1"], "203.0.113.1"),
        ("127.0.0.1", ["1.1.1.1", "203.0.113.1 ,10.0.0.9"], "203.0.113.1"),
        ("::ffff:127.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["10.0.0.1"], "10.0.0.1"),
        ("127.0.0.1", ["1.1.1.1, unknown"], "unknown"),
        ("", ["1.1.1.1"], ""),
    ],
)
def test_where_a_request_comes_from(remote, forwarded, source):
    assert source_of(remote, forwarded, PROXIES) == source
    assert source_of(remote, forwarded, []) == remote
