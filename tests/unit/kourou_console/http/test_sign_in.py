"""Users of the brokers at the console: their secrets, how long a check counts, wrong secrets."""

from __future__ import annotations

import asyncio
import base64
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.api_token import OF_NO_USER, token_digest, token_of
from kourou.errors import NoPermission, Rejected, Throttled, Unavailable
from kourou.model.limits import (
    GATEWAY_ATTEMPTS_MAX,
    GATEWAY_HASHES_AT_ONCE_MAX,
    GATEWAY_SIGN_INS_AT_ONCE_MAX,
    SECRET_LENGTH_MAX,
    USER_NAME_LENGTH_MAX,
)
from kourou.operations import Right
from kourou_console.http import sign_in
from kourou_console.http.call import Caller
from kourou_console.http.responses import Busy, HttpError
from kourou_console.http.sign_in import (
    FORGET_MS,
    FRESH_MS,
    IDLE_MS,
    OF_LOOPBACK,
    OF_NETWORK,
    OF_PLACE,
    OF_USER,
    STALE_MS,
    Attempts,
    SignIns,
)
from kourou_rigs.waiting import until

FAR = "192.0.2.7"


class Time:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class Brokers:
    """Secrets by user, and what was asked."""

    def __init__(self) -> None:
        self.secrets = {"till": "the-secret", "billing": "another-one"}
        self.subjects = {"CN=till": "till"}
        self.tokens = {DIGEST: "till:1"}
        self.passwords: dict[str, str] = {}
        self.asked: list[str] = []
        self.trouble: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def credential(self, name: str, secret: str) -> dict[str, str]:
        self.asked.append(name)
        await self.open.wait()
        if self.trouble is not None:
            raise self.trouble
        right = self.secrets.get(name) == secret
        return {"broker-a": f"id of {secret}"} if right else {}

    async def has_credential(self, name: str, credential: dict[str, str]) -> bool:
        self.asked.append(f"{name} again")
        await self.open.wait()
        if self.trouble is not None:
            raise self.trouble
        return credential == {"broker-a": f"id of {self.secrets.get(name)}"}

    async def password_hash(self, name: str) -> str:
        self.asked.append(f"hash of {name}")
        if self.trouble is not None:
            raise self.trouble
        return self.passwords.get(name, "")

    async def user_of_certificate(self, subject: str) -> str:
        self.asked.append(subject)
        if self.trouble is not None:
            raise self.trouble
        return self.subjects.get(subject, "")

    async def sender_of_token(self, digest: str) -> str:
        self.asked.append(f"token {digest[:8]}")
        if self.trouble is not None:
            raise self.trouble
        return self.tokens.get(digest, "")


TOKEN = token_of(bytes(32))
DIGEST = token_digest(TOKEN)
ASKED = f"token {DIGEST[:8]}"
FIRST = ["hash of till", "till"]
"""What brokers are asked about a secret: first whether it is a password of the user."""

ATTEMPTS_FREE = OF_PLACE.free
LONGEST_WAIT_MS = OF_PLACE.longest_wait_ms
NETWORK_ATTEMPTS_FREE = OF_NETWORK.free
TILL = (OF_PLACE, "till")


@pytest.fixture(autouse=True)
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hash that takes no time; the hashes that passwords were compared with."""
    compared: list[str] = []

    def is_password(password: str, of_user: str) -> bool:
        compared.append(of_user)
        return of_user == f"hash of {password}"

    monkeypatch.setattr(sign_in, "_is_password", is_password)
    return compared


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
async def sign_ins(brokers: Brokers, time: Time) -> SignIns:
    return SignIns(brokers, time)


def basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


async def caller(sign_ins: SignIns, text: str = "till:the-secret", source: str = FAR) -> Caller:
    return (await sign_ins.by_basic(basic(text), source)).caller


async def refused(sign_ins: SignIns, text: str = "till:guessed", source: str = FAR) -> int:
    """The status of an attempt that fails."""
    with pytest.raises((HttpError, Throttled)) as error:
        await caller(sign_ins, text, source)
    return 429 if isinstance(error.value, Throttled) else int(error.value.status)


# -- secrets --------------------------------------------------------------------------------------


async def test_the_right_secret_makes_a_user_of_the_caller(sign_ins, brokers) -> None:
    expected = Caller("till", Right.ADMIN, "till")
    assert await caller(sign_ins) == expected
    assert await caller(sign_ins) == expected
    assert brokers.asked == FIRST


@pytest.mark.parametrize(
    "text", ["till:guessed", "nobody:the-secret", "billing:the-secret", "till:the-secret "]
)
async def test_a_wrong_one_is_401(sign_ins, brokers, text) -> None:
    assert await refused(sign_ins, text) == 401
    assert await caller(sign_ins) == Caller("till", Right.ADMIN, "till")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer abc"},
        {"Authorization": "Basic"},
        {"Authorization": "Basic ***"},
        {"Authorization": "Basic " + base64.b64encode(b"\xff:x").decode()},
        basic("till"),
        basic("till:"),
        basic(":the-secret"),
        basic("x" * 65 + ":the-secret"),
        basic("till:" + "x" * 257),
    ],
)
async def test_what_cannot_be_user_and_secret_is_not_asked_about(
    sign_ins, brokers, headers
) -> None:
    with pytest.raises(HttpError) as error:
        await sign_ins.by_basic(headers, FAR)
    assert error.value.status == 401
    assert brokers.asked == []


async def test_programs_are_asked_for_basic_and_browsers_are_not(sign_ins) -> None:
    """A browser would show a dialog of its own, and keep the secret."""
    with pytest.raises(HttpError) as program:
        await sign_ins.by_basic({}, FAR)
    with pytest.raises(HttpError) as page:
        await sign_ins.by_basic({"Sec-Fetch-Site": "same-origin"}, FAR)
    assert program.value.challenge == 'Basic realm="kourou", charset="UTF-8"'
    assert page.value.challenge == 'Session realm="kourou"'


async def test_concurrent_requests_with_one_secret_are_one_attempt(sign_ins, brokers) -> None:
    brokers.open.clear()
    calls = [asyncio.ensure_future(caller(sign_ins)) for _ in range(20)]
    await asyncio.sleep(0)
    brokers.open.set()
    assert len(set(await asyncio.gather(*calls))) == 1
    assert brokers.asked == FIRST


async def test_a_caller_that_leaves_does_not_end_the_check_of_the_others(sign_ins, brokers) -> None:
    brokers.open.clear()
    first, second = (asyncio.ensure_future(caller(sign_ins)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    brokers.open.set()
    assert (await second).user == "till"


async def test_only_so_many_secrets_are_checked_at_once(sign_ins, brokers) -> None:
    brokers.open.clear()
    names = [f"user-{number}:some-secret" for number in range(GATEWAY_SIGN_INS_AT_ONCE_MAX)]
    calls = [asyncio.ensure_future(refused(sign_ins, name, "127.0.0.1")) for name in names]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await caller(sign_ins)
    brokers.open.set()
    assert set(await asyncio.gather(*calls)) == {401}
    assert (await caller(sign_ins)).user == "till"


async def test_a_console_that_is_no_console_of_the_user_says_no_more_than_401(
    sign_ins, brokers, caplog
) -> None:
    brokers.trouble = NoPermission("only a console of user till may send it")
    assert await refused(sign_ins, "till:the-secret") == 401
    assert "only a console of user till" in caplog.text
    assert "the-secret" not in caplog.text


# -- passwords ------------------------------------------------------------------------------------


async def test_a_password_is_as_good_as_the_secret_and_told_to_no_broker(sign_ins, brokers) -> None:
    """Nor is it noted there as a wrong secret."""
    brokers.passwords = {"till": "hash of a-long-password"}
    expected = Caller("till", Right.ADMIN, "till")
    for text in ("till:a-long-password", "till:the-secret", "till:a-long-password"):
        assert await caller(sign_ins, text) == expected
    assert brokers.asked == ["hash of till", *FIRST]
    assert await refused(sign_ins, "billing:a-long-password") == 401
    assert await refused(sign_ins, "till:hash of a-long-password") == 401


async def test_attempts_count_where_passwords_cannot_be_compared(
    sign_ins, brokers, monkeypatch
) -> None:
    def is_password(password: str, of_user: str) -> bool:
        raise RuntimeError("no Argon2id")

    monkeypatch.setattr(sign_in, "_is_password", is_password)
    brokers.passwords = {"till": "hash of a-long-password"}
    for _ in range(ATTEMPTS_FREE):
        with pytest.raises(RuntimeError):
            await caller(sign_ins, "till:guessed")
    assert await refused(sign_ins) == 429


async def test_an_unknown_user_takes_as_long_as_a_wrong_password(sign_ins, brokers, hashed) -> None:
    brokers.passwords = {"till": "hash of a-long-password"}
    for name in ("till", "billing", "nobody-there"):
        assert await refused(sign_ins, f"{name}:guessed") == 401
    assert hashed == ["hash of a-long-password", OF_NO_USER, OF_NO_USER]


async def test_at_most_two_passwords_are_compared_at_once(sign_ins, brokers, monkeypatch) -> None:
    """Each takes 19 MiB and a core for a while: guesses must not take all of them."""
    lock, go_on = threading.Lock(), threading.Event()
    running = most = 0

    def is_password(password: str, of_user: str) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert go_on.wait(60)
        with lock:
            running -= 1
        return of_user == f"hash of {password}"

    monkeypatch.setattr(sign_in, "_is_password", is_password)
    names = [f"user-{number}" for number in range(10)]
    brokers.passwords = {name: f"hash of password-{name}" for name in names}
    calls = [asyncio.ensure_future(caller(sign_ins, f"{name}:password-{name}")) for name in names]
    await until(lambda: running == GATEWAY_HASHES_AT_ONCE_MAX)
    await until(lambda: len(brokers.asked) == len(names))
    await idle()
    assert most == GATEWAY_HASHES_AT_ONCE_MAX == 2
    go_on.set()
    assert [one.user for one in await asyncio.gather(*calls)] == names
    assert most == 2


# -- certificates ---------------------------------------------------------------------------------


async def owner(sign_ins: SignIns, subject: str = "CN=till") -> str | None:
    """The user of a connection with such a certificate."""
    found = await sign_ins.by_certificate(subject)
    return None if found is None else found.caller.user


async def test_a_certificate_makes_its_user_of_the_caller(sign_ins, brokers) -> None:
    assert [await owner(sign_ins) for _ in range(3)] == ["till"] * 3
    assert [await owner(sign_ins, "CN=unknown") for _ in range(3)] == [None] * 3
    assert await owner(sign_ins, "") is None
    assert brokers.asked == ["CN=till", "CN=unknown"]


@pytest.mark.parametrize(("before", "after"), [("till", ""), ("till", "billing"), ("", "till")])
async def test_a_subject_with_another_owner_counts_within_a_second(
    sign_ins, brokers, time, before, after
) -> None:
    brokers.subjects = {"CN=till": before}
    assert await owner(sign_ins) == (before or None)
    brokers.subjects = {"CN=till": after}
    assert await owner(sign_ins) == (before or None)  # just checked
    time.now_ms += FRESH_MS
    assert await owner(sign_ins) == (after or None)


async def test_a_certificate_of_another_consoles_user_is_nobodys(sign_ins, brokers) -> None:
    brokers.trouble = NoPermission("only a console of user till may send it")
    assert await owner(sign_ins) is None
    brokers.trouble = Unavailable("no broker")
    with pytest.raises(Unavailable):
        await owner(sign_ins, "CN=new")


# -- tokens ---------------------------------------------------------------------------------------


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def by_token(sign_ins: SignIns, token: str = TOKEN, source: str = FAR) -> Caller:
    return (await sign_ins.by_token(bearer(token), source)).caller


async def refused_token(sign_ins: SignIns, token: str = TOKEN) -> str:
    """Why a token gets 401."""
    with pytest.raises(HttpError) as error:
        await by_token(sign_ins, token)
    assert error.value.status == 401
    assert error.value.challenge == 'Bearer realm="kourou", error="invalid_token"'
    return error.value.message


async def test_a_token_makes_its_name_of_the_caller(sign_ins, brokers) -> None:
    expected = Caller("till:1", Right.ADMIN, "till:1")
    assert [await by_token(sign_ins) for _ in range(3)] == [expected] * 3
    assert brokers.asked == [ASKED], "they get the hash, and once"


async def test_a_token_that_is_not_one_is_not_asked_about(sign_ins, brokers) -> None:
    for token in ("", "kourou_", TOKEN + "x", "kourou_" + "é" * 43):
        assert await refused_token(sign_ins, token) == "unknown or revoked token"
    assert brokers.asked == []


async def test_why_a_token_is_refused(sign_ins, brokers, caplog) -> None:
    assert await refused_token(sign_ins, token_of(bytes([1]) * 32)) == "unknown or revoked token"
    brokers.trouble = Rejected("the token has expired")
    assert await refused_token(sign_ins) == "the token has expired"
    brokers.trouble = NoPermission("only a console of user till may send it")
    assert await refused_token(sign_ins) == "unknown or revoked token"
    brokers.trouble = Unavailable("no broker")
    with pytest.raises(Unavailable):
        await by_token(sign_ins)
    brokers.trouble = None
    assert (await by_token(sign_ins)).user == "till:1"
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("trouble", [None, Rejected("the token has expired")])
@pytest.mark.parametrize("age_ms", [FRESH_MS, STALE_MS])
async def test_a_token_that_ends_is_refused_within_a_second(
    sign_ins, brokers, time, trouble, age_ms
) -> None:
    await by_token(sign_ins)
    brokers.tokens.clear()
    brokers.trouble = trouble
    assert (await by_token(sign_ins)).user == "till:1"  # just checked
    time.now_ms += age_ms
    expected = "unknown or revoked token" if trouble is None else "the token has expired"
    assert await refused_token(sign_ins) == expected


async def test_guessed_tokens_delay_their_network_and_no_token_in_use(sign_ins, time) -> None:
    await by_token(sign_ins)
    for number in range(NETWORK_ATTEMPTS_FREE):
        assert await refused_token(sign_ins, token_of((number + 1).to_bytes(32, "big")))
    with pytest.raises(Throttled):
        await by_token(sign_ins, token_of(b"\xff" * 32))
    assert (await by_token(sign_ins)).user == "till:1"
    elsewhere = token_of(b"\xff" * 32)
    with pytest.raises(HttpError):
        await by_token(sign_ins, elsewhere, "203.0.113.1")


async def test_a_revoked_token_that_is_used_again_and_again_is_delayed_itself(sign_ins) -> None:
    """Other users of its network are not."""
    wrong = token_of(b"\xff" * 32)
    for _ in range(ATTEMPTS_FREE):
        await refused_token(sign_ins, wrong)
    with pytest.raises(Throttled):
        await by_token(sign_ins, wrong)
    assert (await by_token(sign_ins)).user == "till:1"


# -- how long a check counts ----------------------------------------------------------------------


async def idle() -> None:
    """Let background checks end."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("age_ms", [FRESH_MS, STALE_MS])
async def test_another_secret_ends_what_began_with_the_former_one(
    sign_ins, brokers, time, age_ms
) -> None:
    await caller(sign_ins)
    brokers.secrets["till"] = "a-new-secret"
    assert (await caller(sign_ins)).user == "till"  # just checked
    time.now_ms += age_ms
    assert await refused(sign_ins, "till:the-secret") == 401
    assert (await caller(sign_ins, "till:a-new-secret")).user == "till"


async def test_brokers_that_are_slow_keep_no_one_waiting_until_the_check_is_stale(
    sign_ins, brokers, time, monkeypatch
) -> None:
    monkeypatch.setattr(sign_in, "CHECK_WAIT_S", 0.001)
    await caller(sign_ins)
    brokers.secrets["till"] = "a-new-secret"
    brokers.open.clear()
    time.now_ms += STALE_MS - 1
    assert (await caller(sign_ins)).user == "till"
    time.now_ms += 1
    waiting = asyncio.ensure_future(refused(sign_ins, "till:the-secret"))
    await idle()
    assert not waiting.done()
    brokers.open.set()
    assert await waiting == 401
    assert brokers.asked == [*FIRST, "till again", *FIRST], "one check for both"


async def test_a_check_that_is_good_is_not_repeated_before_its_time(
    sign_ins, brokers, time
) -> None:
    await caller(sign_ins)
    for _ in range(3):
        time.now_ms += FRESH_MS
        await caller(sign_ins)
        await caller(sign_ins)
        await idle()
    assert brokers.asked == [*FIRST, *["till again"] * 3]


async def test_without_brokers_a_user_works_until_the_check_is_stale(
    sign_ins, brokers, time
) -> None:
    await caller(sign_ins)
    brokers.trouble = Unavailable("no broker")
    time.now_ms += STALE_MS - 1
    await caller(sign_ins)
    await idle()
    time.now_ms += 1
    with pytest.raises(Unavailable, match="no broker"):
        await caller(sign_ins)
    brokers.trouble = None
    assert (await caller(sign_ins)).user == "till"


async def test_an_idle_user_is_asked_for_as_at_first(sign_ins, brokers, time) -> None:
    await caller(sign_ins)
    time.now_ms += IDLE_MS
    await caller(sign_ins)
    assert brokers.asked == FIRST * 2


# -- wrong secrets --------------------------------------------------------------------------------


async def test_wrong_secrets_delay_the_next_attempt_more_and_more(sign_ins, time) -> None:
    for _ in range(ATTEMPTS_FREE):
        assert await refused(sign_ins, source="127.0.0.1") == 401
    for wait_ms in (2_000, 4_000, 8_000):
        time.now_ms += wait_ms - 1
        assert await refused(sign_ins, "till:the-secret", "127.0.0.1") == 429
        time.now_ms += 1
        assert await refused(sign_ins, source="127.0.0.1") == 401
    time.now_ms += LONGEST_WAIT_MS
    assert (await caller(sign_ins, source="127.0.0.1")).user == "till"
    assert await refused(sign_ins, source="127.0.0.1") == 401  # the count began again


async def test_the_wait_is_never_longer_than_fifteen_minutes(time) -> None:
    attempts = Attempts(time)
    for _ in range(40):
        attempts.begin([TILL])
        attempts.failed([TILL])
        time.now_ms += LONGEST_WAIT_MS
    attempts.begin([TILL])
    with pytest.raises(Throttled) as delayed:
        attempts.begin([TILL])
    assert delayed.value.retry_after_ms == LONGEST_WAIT_MS


async def test_attempts_at_the_same_time_are_delayed_too(sign_ins, brokers) -> None:
    brokers.open.clear()
    texts = [f"till:guess-{number}" for number in range(20)]
    calls = [asyncio.ensure_future(refused(sign_ins, text)) for text in texts]
    await asyncio.sleep(0)
    brokers.open.set()
    assert sorted(await asyncio.gather(*calls)) == [401] * ATTEMPTS_FREE + [429] * 15


async def test_who_is_signed_in_is_not_delayed(sign_ins, time) -> None:
    await caller(sign_ins)
    for number in range(ATTEMPTS_FREE + 1):
        assert await refused(sign_ins) == (401 if number < ATTEMPTS_FREE else 429)
    assert (await caller(sign_ins)).user == "till"
    time.now_ms += FRESH_MS
    assert (await caller(sign_ins)).user == "till"


@pytest.mark.parametrize(
    ("first", "second", "delayed"),
    [
        ("192.0.2.1", "192.0.2.255", True),
        ("192.0.2.1", "192.0.3.1", False),
        ("::ffff:192.0.2.1", "192.0.2.9", True),
        ("2001:db8:1:2::1", "2001:db8:1:ffff::", True),
        ("2001:db8:1:2::1", "2001:db8:2:2::1", False),
        ("127.0.0.1", "127.0.0.1", False),  # a proxy, for all
        ("::1", "::1", False),
        ("", "", False),
    ],
)
async def test_a_network_that_tries_many_users_is_delayed(sign_ins, first, second, delayed) -> None:
    for number in range(NETWORK_ATTEMPTS_FREE):
        assert await refused(sign_ins, f"user-{number}:guessed", first) == 401
    if delayed:
        assert await refused(sign_ins, "till:the-secret", second) == 429
    else:
        assert (await caller(sign_ins, source=second)).user == "till"


@pytest.mark.parametrize("source", ["127.0.0.1", "::1", ""])
async def test_loopback_has_a_limit_too(sign_ins, source) -> None:
    """A program on this machine, or behind a proxy that is not trusted, tries many users."""
    for number in range(OF_LOOPBACK.free):
        assert await refused(sign_ins, f"user-{number}:guessed", source) == 401
    assert await refused(sign_ins, "till:the-secret", "127.0.0.2") == 429
    assert (await caller(sign_ins)).user == "till"


async def test_ones_own_secret_does_not_forgive_the_network(sign_ins) -> None:
    for number in range(NETWORK_ATTEMPTS_FREE):
        assert await refused(sign_ins, f"user-{number}:guessed") == 401
        if number < NETWORK_ATTEMPTS_FREE - 1:
            await caller(sign_ins)
    assert await refused(sign_ins, "user-x:guessed") == 429


async def test_an_attempt_without_an_answer_does_not_count(sign_ins, brokers) -> None:
    brokers.trouble = Unavailable("no broker")
    for _ in range(ATTEMPTS_FREE + 1):
        with pytest.raises(Unavailable):
            await caller(sign_ins)
    brokers.trouble = None
    assert (await caller(sign_ins)).user == "till"


async def test_the_table_of_attempts_is_bounded(time) -> None:
    attempts = Attempts(time)
    for number in range(GATEWAY_ATTEMPTS_MAX + 10):
        attempts.begin([(OF_PLACE, f"user-{number}")])
    assert len(attempts._failures) == GATEWAY_ATTEMPTS_MAX


@pytest.mark.parametrize("later_ms", [0, 2_001])
async def test_whose_attempts_are_used_up_stays_in_the_full_table(time, later_ms) -> None:
    """Also when the wait is over: attempts for many other names do not make them free again."""
    attempts = Attempts(time)
    for _ in range(ATTEMPTS_FREE):
        attempts.begin([TILL])
    time.now_ms += later_ms
    for number in range(GATEWAY_ATTEMPTS_MAX + 10):
        attempts.begin([(OF_PLACE, f"user-{number}")])
    if later_ms:
        attempts.begin([TILL])
    with pytest.raises(Throttled):
        attempts.begin([TILL])


async def test_who_knows_a_name_keeps_its_user_out_only_from_the_same_network(sign_ins) -> None:
    for number in range(ATTEMPTS_FREE + 1):
        expected = 401 if number < ATTEMPTS_FREE else 429
        assert await refused(sign_ins, source="203.0.113.1") == expected
    assert (await caller(sign_ins)).user == "till"


async def test_guesses_from_many_networks_are_delayed_for_a_short_time(sign_ins, time) -> None:
    for number in range(OF_USER.free):
        assert await refused(sign_ins, source=f"10.0.{number}.1") == 401
    assert await refused(sign_ins, source="10.1.0.1") == 429
    for _ in range(40):
        time.now_ms += OF_USER.longest_wait_ms
        assert await refused(sign_ins, source="10.2.0.1") in (401, 429)
    time.now_ms += OF_USER.longest_wait_ms
    assert (await caller(sign_ins)).user == "till"


async def test_failures_of_a_network_are_forgotten_although_others_sign_in(sign_ins, time) -> None:
    for number in range(NETWORK_ATTEMPTS_FREE - 1):
        assert await refused(sign_ins, f"user-{number}:guessed") == 401
    time.now_ms += FORGET_MS // 2
    await caller(sign_ins)
    time.now_ms += FORGET_MS // 2
    assert await refused(sign_ins, "user-x:guessed") == 401
    assert await refused(sign_ins, "user-y:guessed") == 401, "the former ones do not count"


@pytest.mark.fuzz
@given(
    st.text(max_size=40)
    | st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode())
    | st.tuples(st.text(max_size=70), st.text(max_size=300)).map(
        lambda pair: base64.b64encode(":".join(pair).encode("utf-8", "replace")).decode()
    )
)
def test_any_credentials_are_a_user_and_a_secret_or_wrong(given_text: str) -> None:
    try:
        user, secret = sign_in._basic(given_text)
    except sign_in._WrongSecret:
        return
    assert 0 < len(user) <= USER_NAME_LENGTH_MAX
    assert 0 < len(secret) <= SECRET_LENGTH_MAX
    assert ":" not in user
