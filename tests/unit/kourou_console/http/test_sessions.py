"""Sessions over HTTP: the cookie, the token for changes, other sites, and how a session ends."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Iterator
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from typing import cast

import pytest

from kourou.access.api_token import token_digest, token_of
from kourou.access.model import Door
from kourou.authorization.audit import OwnRefusals
from kourou.client.admin.users import UsersApi
from kourou.errors import KourouError, NoPermission, Unavailable
from kourou.protocol.bodies.access_bodies import ReportedRefusal
from kourou.service.passwords import new_hash
from kourou.testing.cluster import Cluster
from kourou.transport.tls import ClientAuth, TlsMode
from kourou_console import app as console_app
from kourou_console.app import RefusalReporter
from kourou_console.http.access import Tokens
from kourou_console.http.sessions import SESSION_MS
from kourou_console.http.sign_in import IDLE_MS, OF_PLACE, STALE_MS
from kourou_rigs.certificates import Authority
from kourou_rigs.console import ConsoleHere, HttpAnswer, HttpClient
from kourou_rigs.console_users import HandTime, KnownSecrets, users_at

GROUP = "/v1/groups/new-group"


@pytest.fixture
def time() -> HandTime:
    return HandTime()


@pytest.fixture
def known() -> KnownSecrets:
    return KnownSecrets({"till": "the-secret", "ops": "secret-of-ops"})


@pytest.fixture
def api(console: ConsoleHere, time: HandTime, known: KnownSecrets) -> Iterator[ConsoleHere]:
    """The console with these users."""
    with users_at(console, known, time):
        yield console


def begin(
    api: ConsoleHere, user: str = "till", secret: str = "the-secret", **headers: str
) -> HttpAnswer:
    return api.post("/session", json={"user": user, "secret": secret}, headers=headers)


def cookie_of(answer: HttpAnswer) -> Morsel[str]:
    [morsel] = SimpleCookie(answer.headers["set-cookie"]).values()
    return morsel


def signed_in(api: ConsoleHere) -> dict[str, str]:
    """The headers of a page whose user is signed in."""
    answer = begin(api)
    assert answer.status == 200, answer.text
    cookie = cookie_of(answer)
    return {"Cookie": f"{cookie.key}={cookie.value}", "Csrf-Token": answer.json["csrf"]}


def test_a_session_is_the_user(api: ConsoleHere) -> None:
    headers = signed_in(api)
    me = api.get("/v1/me", headers=headers).json
    assert (me["name"], me["rights"]) == ("till", ["read", "write", "admin"])
    view = api.get("/session", headers=headers).json
    assert view == {"sign_in": "users", "user": "till", "csrf": headers["Csrf-Token"]}
    assert api.put(GROUP, json={}, query={"preview": "true"}, headers=headers).status == 200
    assert api.get("/session").json == {"sign_in": "users", "user": None, "csrf": None}
    assert api.get("/v1/me").status == 401


def test_the_cookie_is_for_no_script_and_no_other_site(api: ConsoleHere) -> None:
    plain = cookie_of(begin(api))
    assert (plain.key, plain["httponly"], plain["samesite"], plain["path"]) == (
        *("kourou-session", True, "Strict", "/"),
    )
    assert (plain["secure"], plain["domain"], plain["expires"]) == ("", "", "")
    assert len(plain.value) >= 43
    secure = cookie_of(begin(api, Origin=f"https://{api.address}"))
    assert (secure.key, secure["secure"], secure["httponly"]) == (
        *("__Host-kourou-session", True, True),
    )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "keys", "own")


@pytest.fixture
def over_tls(
    cluster: Cluster, time: HandTime, known: KnownSecrets, authority: Authority
) -> Iterator[ConsoleHere]:
    """A console that serves TLS and verifies certificates, with these users."""
    certificate, key = authority.pair("console")
    with (
        ConsoleHere(
            cluster,
            tls=authority.trusted(),
            tls_mode=TlsMode.ENFORCING,
            tls_cert_path=certificate,
            tls_key_path=key,
            tls_trust_cert_path=authority.path,
            tls_need_client_auth=ClientAuth.OPTIONAL,
        ) as console,
        users_at(console, known, time),
    ):
        yield console


def test_over_tls_cookies_are_secure_and_browsers_stay_there(
    over_tls: ConsoleHere, api: ConsoleHere
) -> None:
    answer = begin(over_tls)
    cookie = cookie_of(answer)
    assert (cookie.key, cookie["secure"]) == ("__Host-kourou-session", True)
    page, refused = over_tls.get("/"), over_tls.get("/v1/me")
    assert [one.status for one in (answer, page, refused)] == [200, 200, 401]
    for one in (answer, page, refused):
        assert one.headers["strict-transport-security"] == "max-age=2592000"
    assert "strict-transport-security" not in api.get("/").headers
    headers = {"Cookie": f"{cookie.key}={cookie.value}", "Csrf-Token": answer.json["csrf"]}
    assert over_tls.get("/v1/me", headers=headers).json["name"] == "till"
    own_page = {**headers, "Origin": f"https://{over_tls.address}"}
    assert over_tls.delete("/session", headers=own_page).status == 204
    plain = HttpClient(over_tls.address).get("/", headers={"X-Long": "x" * 5_000})
    assert (plain.status, "https://" in plain.text) == (400, True)


@pytest.fixture
def shown(
    over_tls: ConsoleHere, known: KnownSecrets, authority: Authority
) -> Callable[[str], HttpClient]:
    """Clients of that console by the subject of the certificate that they show ("" none)."""
    known.subjects = {"CN=till,O=Example": "till"}

    def client(subject: str) -> HttpClient:
        pair = authority.pair("client", subject=subject) if subject else None
        return HttpClient(over_tls.address, tls=authority.trusted(pair))

    return client


def test_a_certificate_is_its_user_without_a_secret(
    shown: Callable[[str], HttpClient], known: KnownSecrets, time: HandTime
) -> None:
    till = shown("CN=till,O=Example")
    assert till.get("/v1/me").json["name"] == "till"
    for subject in ("CN=till", "CN=till,O=Other", ""):
        assert shown(subject).get("/v1/me").status == 401, subject
    changed = till.put(GROUP, json={}, query={"preview": "true"})
    assert changed.status == 200, changed.text
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    refused = till.put(GROUP, json={}, query={"preview": "true"}, headers=foreign)
    assert refused.status == 403
    known.subjects.clear()
    time.now_ms += STALE_MS
    assert till.get("/v1/me").status == 401


def test_other_credentials_must_be_of_the_owner_of_the_certificate(
    shown: Callable[[str], HttpClient], known: KnownSecrets
) -> None:
    till, stranger = shown("CN=till,O=Example"), shown("CN=stranger")
    for user, secret, statuses in (
        ("till", "the-secret", (200, 200)),
        ("ops", "secret-of-ops", (403, 200)),
        ("ops", "guessed", (401, 401)),
    ):
        text = base64.b64encode(f"{user}:{secret}".encode()).decode()
        basic = {"Authorization": f"Basic {text}"}
        found = tuple(one.get("/v1/me", headers=basic).status for one in (till, stranger))
        assert found == statuses, (user, secret)
    cookie = cookie_of(stranger.post("/session", json={"user": "ops", "secret": "secret-of-ops"}))
    session = {"Cookie": f"{cookie.key}={cookie.value}"}
    assert stranger.get("/v1/me", headers=session).json["name"] == "ops"
    refused = till.get("/v1/me", headers=session)
    assert refused.status == 403
    assert "does not belong to user ops" in refused.json["detail"]
    for name, statuses in (("till:1", (200, 200)), ("ops:1", (403, 200))):
        token = token_of(name.encode().ljust(32))
        known.tokens[token_digest(token)] = name
        bearer = {"Authorization": f"Bearer {token}"}
        found = tuple(one.get("/v1/me", headers=bearer).status for one in (till, stranger))
        assert found == statuses, name


def test_a_wrong_secret_begins_nothing(api: ConsoleHere) -> None:
    answer = begin(api, secret="guessed")
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    assert "the-secret" not in answer.text
    for body in (b"{", b"{}", b'{"user": "till"}', b'{"user": "", "secret": ""}', b"x" * 5_000):
        headers = {"Content-Type": "application/json"}
        assert api.post("/session", body=body, headers=headers).status in (400, 401, 413)


def test_each_sign_in_has_a_new_cookie_and_ends_the_former_one(api: ConsoleHere) -> None:
    first = signed_in(api)
    second = begin(api, Cookie=first["Cookie"])
    assert cookie_of(second).value not in first["Cookie"]
    assert api.get("/v1/me", headers=first).status == 401


def test_a_cookie_that_the_console_did_not_make_is_nobody(api: ConsoleHere) -> None:
    """An attacker cannot choose the session of somebody who signs in later."""
    chosen = {"Cookie": "kourou-session=" + "a" * 43}
    assert api.get("/v1/me", headers=chosen).status == 401
    assert begin(api, **chosen).status == 200
    assert api.get("/v1/me", headers=chosen).status == 401


# -- other sites ----------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "", "0" * 64, "ä"])
def test_a_change_needs_the_token_of_the_session(api: ConsoleHere, token: str | None) -> None:
    headers = signed_in(api)
    del headers["Csrf-Token"]
    if token is not None:
        headers["Csrf-Token"] = token
    answer = api.put(GROUP, json={}, query={"preview": "true"}, headers=headers)
    assert answer.status == 403
    assert "Csrf-Token" in answer.json["detail"]
    assert api.delete("/session", headers=headers).status == 403
    assert api.get("/v1/me", headers=headers).status == 200


def test_the_token_of_another_session_is_not_enough(api: ConsoleHere) -> None:
    mine, others = signed_in(api), signed_in(api)
    mixed = {"Cookie": mine["Cookie"], "Csrf-Token": others["Csrf-Token"]}
    assert api.put(GROUP, json={}, query={"preview": "true"}, headers=mixed).status == 403


def test_pages_of_other_sites_change_nothing_and_begin_no_session(api: ConsoleHere) -> None:
    headers = signed_in(api)
    for foreign in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = api.put(GROUP, json={}, query={"preview": "true"}, headers=headers | foreign)
        assert answer.status == 403, foreign
        assert begin(api, **foreign).status == 403, foreign
    same = {"Origin": f"http://{api.address}", "Sec-Fetch-Site": "same-origin"}
    answer = api.put(GROUP, json={}, query={"preview": "true"}, headers=headers | same)
    assert answer.status == 200


def test_a_form_begins_no_session(api: ConsoleHere) -> None:
    body = b'{"user": "till", "secret": "the-secret"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert api.post("/session", body=body, headers={"Content-Type": kind}).status == 415


# -- the end --------------------------------------------------------------------------------------


def test_after_a_sign_out_the_cookie_is_nobody(api: ConsoleHere) -> None:
    headers = signed_in(api)
    answer = api.delete("/session", headers=headers)
    assert answer.status == 204
    assert cookie_of(answer)["max-age"] == "0"
    assert api.get("/v1/me", headers=headers).status == 401
    assert api.delete("/session", headers=headers).status == 204


def test_a_session_ends_without_requests_and_after_twelve_hours(
    api: ConsoleHere, time: HandTime
) -> None:
    headers = signed_in(api)
    time.now_ms += IDLE_MS - 1
    assert api.get("/v1/me", headers=headers).status == 200
    time.now_ms += IDLE_MS
    assert api.get("/v1/me", headers=headers).status == 401
    headers = signed_in(api)
    for _ in range(SESSION_MS // (IDLE_MS - 1)):
        time.now_ms += IDLE_MS - 1
        assert api.get("/v1/me", headers=headers).status == 200
    time.now_ms += IDLE_MS - 1
    assert api.get("/v1/me", headers=headers).status == 401


def test_a_session_ends_with_the_secret(
    api: ConsoleHere, time: HandTime, known: KnownSecrets
) -> None:
    headers = signed_in(api)
    known.secrets["till"] = "another-secret"
    time.now_ms += STALE_MS
    assert api.get("/v1/me", headers=headers).status == 401
    known.secrets["till"] = "the-secret"
    assert api.get("/v1/me", headers=headers).status == 401


@pytest.mark.parametrize("changed", [{}, {"till": "another hash"}])
def test_a_session_of_a_password_ends_with_it(
    api: ConsoleHere, time: HandTime, known: KnownSecrets, changed: dict[str, str]
) -> None:
    known.passwords = {"till": new_hash("several long words")}
    assert begin(api, secret="several long word").status == 401
    cookie = cookie_of(begin(api, secret="several long words"))
    headers = {"Cookie": f"{cookie.key}={cookie.value}"}
    for _ in range(2):
        time.now_ms += STALE_MS
        assert api.get("/v1/me", headers=headers).json["name"] == "till"
    known.passwords = changed
    time.now_ms += STALE_MS
    assert api.get("/v1/me", headers=headers).status == 401


def test_without_brokers_nobody_is_let_in_and_nobody_is_signed_out(
    api: ConsoleHere, time: HandTime, known: KnownSecrets
) -> None:
    headers = signed_in(api)
    known.silent = True
    time.now_ms += STALE_MS
    assert api.get("/v1/me", headers=headers).status == 503
    known.silent = False
    assert api.get("/v1/me", headers=headers).status == 200


# -- what the console refuses itself --------------------------------------------------------------


@pytest.fixture
def refusals(api: ConsoleHere) -> OwnRefusals:
    """What is to be reported; the test takes it."""
    reporter = api.service._reporter
    assert reporter is not None
    api.run(reporter.stop())
    found = api.service._refusals
    found.take()
    return found


def basic(user: str, secret: str) -> dict[str, str]:
    text = base64.b64encode(f"{user}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


def test_what_the_console_refuses_without_brokers_is_for_their_audit(
    api: ConsoleHere, refusals: OwnRefusals
) -> None:
    headers = signed_in(api)
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    for status, answer in (
        (401, api.get("/v1/me")),
        (401, api.get("/v1/me", headers={"Authorization": "Bearer kourou_short"})),
        (403, api.put(GROUP, json={}, headers={**basic("till", "the-secret"), **foreign})),
        (403, api.put(GROUP, json={}, headers={"Cookie": headers["Cookie"]})),
        (403, api.post("/session", json={}, headers=foreign)),
    ):
        assert answer.status == status, answer.text
    found = {(one.user, one.request, one.by): one for one in refusals.take()}
    assert {one.source for one in found.values()} == {"127.0.0.1"}
    assert {one.door for one in found.values()} == {Door.HTTP}
    page = "a page of 'https://evil.example' may not use this gateway"
    assert set(found) == {
        ("anonymous", "SignIn", "sign in as a user of the brokers"),
        ("anonymous", "SignIn", "unknown or revoked token"),
        ("anonymous", "HttpRequest", f"'till' claimed: {page}"),
        ("anonymous", "HttpRequest", page),
        ("anonymous", "HttpRequest", "a change by a session needs the header Csrf-Token"),
    }


def test_what_brokers_refused_is_in_their_audit_already(
    api: ConsoleHere, refusals: OwnRefusals
) -> None:
    wrong = [api.get("/v1/me", headers=basic("ops", "guessed")) for _ in range(OF_PLACE.free)]
    assert {one.status for one in wrong} == {401}
    token = {"Authorization": f"Bearer {token_of(bytes([7]) * 32)}"}
    assert api.get("/v1/me", headers=token).status == 401
    assert len(refusals) == 0
    assert api.get("/v1/me", headers=basic("ops", "guessed")).status == 429
    assert begin(api, "ops", "guessed").status == 429
    [one] = refusals.take()
    assert (one.user, one.request, one.count) == ("anonymous", "SignIn", 2)
    assert one.by == "'ops' claimed: too many attempts with a wrong secret"


def test_invented_names_do_not_fill_the_audit(api: ConsoleHere, refusals: OwnRefusals) -> None:
    for number in range(20):
        headers = {**basic(f"invented-{number}", "x"), "Origin": "https://shop.example"}
        assert api.get("/v1/me", headers=headers).status == 403
    taken = refusals.take()
    assert {(one.user, one.request) for one in taken} == {("anonymous", "HttpRequest")}, taken
    assert sum(one.count for one in taken) == 20
    assert "'invented-19' claimed: " in taken[-1].by


class Reports:
    """Brokers that take reports, or do not."""

    def __init__(self, *troubles: KourouError | None) -> None:
        self.troubles = list(troubles)
        self.taken: list[int] = []

    async def report_refusals(self, refusals: Iterable[ReportedRefusal]) -> None:
        self.taken.append(sum(one.count for one in refusals))
        if self.troubles and (trouble := self.troubles.pop(0)) is not None:
            raise trouble


async def test_what_could_not_be_reported_is_reported_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = OwnRefusals()
    brokers = Reports(Unavailable("away"), None, NoPermission("no console"), NoPermission("no"))
    reporter = RefusalReporter(refusals, cast("UsersApi", brokers))
    for _ in range(5):
        refusals.note("eve", "", "SignIn", "wrong", door=None)
        await reporter.stop()  # reports the last ones
    assert brokers.taken == [1, 2, 1, 1, 1]
    assert caplog.text.count("are not in the brokers' audit") == 1


async def test_a_stop_during_a_report_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals, asked = OwnRefusals(), asyncio.Event()
    brokers = Reports()

    class Busy(Reports):
        async def report_refusals(self, refusals: Iterable[ReportedRefusal]) -> None:
            if not asked.is_set():
                asked.set()
                await asyncio.Event().wait()
            await brokers.report_refusals(refusals)

    monkeypatch.setattr(console_app, "REPORT_S", 0)
    reporter = RefusalReporter(refusals, cast("UsersApi", Busy()))
    refusals.note("anonymous", "", "SignIn", "wrong", door=None)
    reporter.start()
    async with asyncio.timeout(20):
        await asked.wait()
    await reporter.stop()
    assert brokers.taken == [1]


# -- tokens next to users -------------------------------------------------------------------------


OF_FILE = {"Authorization": "Bearer a-token-of-some-length"}


def token_file(folder: Path, right: str = "read") -> Tokens:
    """A file with the token of OF_FILE, which has the name ci."""
    file = folder / "tokens.toml"
    file.write_text(
        f'[[token]]\nname = "ci"\nright = "{right}"\ntoken = "a-token-of-some-length"\n'
    )
    return Tokens(file, HandTime())


def test_tokens_of_a_file_work_as_before_and_what_they_lack_is_for_the_audit(
    console: ConsoleHere, known: KnownSecrets, refusals: OwnRefusals, tmp_path: Path
) -> None:
    with users_at(console, known, tokens=token_file(tmp_path)):
        me = console.get("/v1/me", headers=OF_FILE).json
        assert (me["name"], me["rights"]) == ("ci", ["read"])
        assert console.put(GROUP, json={}, headers=OF_FILE).status == 403
        foreign = {**OF_FILE, "Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}
        assert console.get("/v1/me", headers=foreign).status == 200
        assert console.get("/v1/me", headers={"Authorization": "Bearer guessed"}).status == 401
        assert console.get("/v1/me", headers=signed_in(console)).json["name"] == "till"
    found = [(one.user, one.request, one.by) for one in refusals.take()]
    assert found == [
        ("tokenFile/ci", "put_group", "the token 'ci' has the right read; this needs admin"),
        ("anonymous", "SignIn", "unknown token"),
    ]


@pytest.mark.parametrize("right", ["read", "write", "admin"])
def test_a_token_of_the_file_reads_the_audit_only_with_the_right_admin(
    console: ConsoleHere, known: KnownSecrets, tmp_path: Path, right: str
) -> None:
    """The console asks brokers as itself then, and its user may be an administrator."""
    with users_at(console, known, tokens=token_file(tmp_path, right)):
        for path in ("/v1/audit", "/v1/audit/export"):
            status = console.get(path, headers=OF_FILE).status
            assert status == (200 if right == "admin" else 403), path


def test_an_api_token_is_its_user_within_its_scope(
    console: ConsoleHere, known: KnownSecrets, tmp_path: Path
) -> None:
    """Also at a console that has tokens of its own; its name is what brokers get."""
    token, time = token_of(bytes(32)), HandTime()
    bearer = {"Authorization": f"Bearer {token}"}
    for tokens in (None, token_file(tmp_path)):
        with users_at(console, known, time, tokens):
            known.tokens = {token_digest(token): "till:1"}
            assert console.get("/v1/me", headers=bearer).json["name"] == "till:1"
            changed = console.put(GROUP, json={}, query={"preview": "true"}, headers=bearer)
            assert changed.status == 200, "no session, so no header Csrf-Token"
            foreign = {**bearer, "Origin": "https://shop.example"}
            assert console.get("/v1/me", headers=foreign).status == 403
            known.tokens = {token_digest(token): "!till:1"}
            time.now_ms += STALE_MS
            refused = console.get("/v1/me", headers=bearer)
            assert (refused.status, refused.json["detail"]) == (401, "the token has expired")
            assert refused.headers["www-authenticate"].startswith("Bearer ")
            known.tokens = {}
            refused = console.get("/v1/me", headers=bearer)
            assert (refused.status, refused.json["detail"]) == (401, "unknown or revoked token")
            assert token not in refused.text


def test_a_name_that_no_user_has_is_not_asked_about(api: ConsoleHere, known: KnownSecrets) -> None:
    """A colon begins the id of a token, whose attempts it would use up."""
    known.secrets |= {"till:1": "the-secret", ":1": "the-secret"}
    for name in ("till:1", ":1", ""):
        assert begin(api, name).status == 401, name


def test_a_token_begins_no_session(api: ConsoleHere, known: KnownSecrets) -> None:
    token = token_of(bytes(32))
    known.tokens = {token_digest(token): "till:1"}
    assert begin(api, "till:1", token).status == 401
    bearer = {"Authorization": f"Bearer {token}"}
    assert api.get("/session", headers=bearer).json["user"] is None


# -- without users --------------------------------------------------------------------------------


def test_a_console_without_users_says_so(console: ConsoleHere) -> None:
    assert console.get("/session").json == {"sign_in": None, "user": None, "csrf": None}
    assert console.post("/session", json={"user": "till", "secret": "x"}).status == 405
