"""Requests about users: no secret comes out again. The rest is in the transcripts."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kourou.access.api_token import OF_NO_USER, id_of, token_digest, token_of
from kourou.engine.admin.history import event_view, state_body
from kourou.engine.control import encode_state
from kourou.errors import Code, DecodeError
from kourou.model.limits import OWN_CHANGES_HOUR_MAX
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import (
    UserChange,
    decode_tokens,
    decode_user_change,
)
from kourou.protocol.messages.access import (
    AuthDeleteUser,
    AuthGetAcl,
    AuthGetUser,
    AuthListAcl,
    AuthListUser,
    AuthUpdateUser,
    CheckCredential,
    CreateApiToken,
    CreateOwnToken,
    GetAccessStatus,
    ListApiTokens,
    ListOwnTokens,
    RevokeOwnToken,
    SetOwnPassword,
)
from kourou.protocol.messages.broker_admin import (
    GetBrokerClusterAclInfo,
    GetBrokerConfig,
    GetControlEvents,
    Undo,
    UpdateAndCreateAclConfig,
)
from kourou.protocol.messages.replication import FetchLog
from kourou.runtime import Reply
from kourou.service.secret_keys import SecretKeys
from kourou_rigs.access import SecuredBroker, Sender, curve_key, secret_box
from kourou_rigs.engine import header_of

ONLY_AN_ADMINISTRATOR = "only an administrator may change"


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker without users."""
    return SecuredBroker()


@pytest.fixture
def clerk(broker: SecuredBroker, root: Sender) -> Sender:
    """A user who may do everything with users, and nothing else."""
    made = broker.create(root, "clerk")
    assert broker.allow(root, "clerk", "User:*", "All").code == Code.SUCCESS
    return made


def ask(broker: SecuredBroker, sender: Sender, request: Any, **body: Any) -> Reply:
    return broker.ask(sender, request, msgspec.json.encode(body) if body else b"")


# -- nobody raises himself ------------------------------------------------------------------------


def test_the_log_is_not_for_who_may_not_read_users(broker: SecuredBroker, root: Sender) -> None:
    """It has their names, policies and keys."""
    fetch = FetchLog(group="broker-a", position=0, max_bytes=1 << 20)
    for name, reads in (("viewer", False), ("writer", False), ("backup", True)):
        sender = replace(broker.create(root, name, name), secret="")
        reply = ask(broker, sender, fetch)
        assert (reply.code == Code.SUCCESS) is reads
        assert (curve_key("root").encode() in b"".join(map(bytes, reply.body))) is reads
    broker.allow(root, "viewer", "User:*", "Get")
    assert ask(broker, Sender(key=curve_key("viewer")), fetch).code == Code.SUCCESS


# -- secrets at a console -------------------------------------------------------------------------


def checked(broker: SecuredBroker, sender: Sender, name: str, **fields: str) -> tuple[bool, str]:
    """Whether a secret, or an id, is valid, and the id."""
    secret = fields.pop("secret", "")
    body = msgspec.json.encode({"password": secret})
    reply = broker.ask(sender, CheckCredential(username=name, **fields), body)
    assert reply.code == Code.SUCCESS, reply.remark
    header = header_of(reply)
    assert header.has_users
    return header.valid, header.credential


def test_a_console_checks_secrets(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    till = broker.create(root, "till")
    valid, credential = checked(broker, console, "till", secret=till.secret)
    assert valid
    assert credential
    assert till.secret not in credential
    assert checked(broker, console, "till", credential=credential) == (True, credential)
    assert checked(broker, console, "nobody", credential=credential) == (False, "")


def test_what_ends_a_credential(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    for name, change in (
        ("disabled", {"userStatus": "disable"}),
        ("renewed", {"password": "another-secret"}),
        ("console-2", {"roles": ["console"]}),
        ("node", {"kind": "node", "node": "c/b/0"}),
    ):
        made = broker.create(root, name)
        valid, credential = checked(broker, console, name, secret=made.secret)
        assert valid
        assert ask(broker, root, AuthUpdateUser(username=name), **change).code == Code.SUCCESS
        assert checked(broker, console, name, credential=credential) == (False, ""), name
    made = broker.create(root, "deleted")
    _, credential = checked(broker, console, "deleted", secret=made.secret)
    assert ask(broker, root, AuthDeleteUser(username="deleted")).code == Code.SUCCESS
    assert checked(broker, console, "deleted", credential=credential) == (False, "")


# -- passwords ------------------------------------------------------------------------------------


def test_who_may_set_a_password_and_that_no_reply_shows_it(
    broker: SecuredBroker, root: Sender, clerk: Sender
) -> None:
    by_key = replace(root, secret="")
    broker.create(root, "till", "writer")
    broker.create(root, "plain")
    for name in ("till", "root", "plain"):
        reply = ask(broker, clerk, AuthUpdateUser(username=name), passwordHash=OF_NO_USER)
        assert ONLY_AN_ADMINISTRATOR in reply.remark, name
    changed = AuthUpdateUser(username="till")
    refused = ask(broker, root, changed, passwordHash="several long words")
    assert "a password is stored as" in refused.remark
    assert "several long words" not in refused.remark
    assert ask(broker, root, changed, passwordHash=OF_NO_USER).code == Code.SUCCESS
    replies = [
        ask(broker, root, AuthGetUser(username="till")),
        ask(broker, root, AuthListUser()),
        ask(broker, by_key, GetControlEvents(from_offset=0, max_count=100)),
    ]
    shown = [
        *(b"".join(one.body) for one in replies),
        *(msgspec.json.encode(event_view(one)) for one in broker.events()),
        state_body(broker.engine.control, "user/till"),
    ]
    assert b'"has_password":true' in shown[-1]
    assert not [one for one in shown if b"argon2id" in one]
    assert json.loads(shown[0])["kept"] == ["secret", "password"]


def test_no_copy_of_the_log_or_the_state_has_the_hash_of_a_password(
    broker: SecuredBroker, root: Sender
) -> None:
    hashed = OF_NO_USER.replace("AAA", "BCD")
    broker.create(root, "ann", passwordHash=hashed)
    sealed = broker.access.passwords["ann"]
    stored = [*broker.engine.store.records.values(), encode_state(broker.engine.control)]
    stored.append(repr([broker.access, broker.events(), broker.engine.effects]).encode())
    for text in (hashed, hashed.rpartition("$")[2], "argon2id"):
        assert not [one for one in stored if text.encode() in one], text
    assert secret_box().open("ann:password", sealed) == hashed
    with pytest.raises(DecodeError):  # nor is it a secret of the user, or of one with that name
        secret_box().open("ann", sealed)


def test_a_password_whose_key_is_lost_lets_nobody_in(broker: SecuredBroker, root: Sender) -> None:
    console = replace(broker.create(root, "console-1", "console"), secret="")
    broker.create(root, "ann", passwordHash=OF_NO_USER)
    question = CheckCredential(username="ann", password=True)
    assert header_of(broker.ask(console, question, b"")).password_hash == OF_NO_USER
    for box in (None, SecretKeys({"k2": bytes(range(32))})):
        broker.engine.core.parts.access_gate._box = box
        header = header_of(broker.ask(console, question, b""))
        assert (header.valid, header.password_hash) == (False, ""), box


# -- tokens ---------------------------------------------------------------------------------------

DIGEST = token_digest(token_of(bytes(32)))


def creation(broker: SecuredBroker, name: str = "till", **fields: Any) -> CreateApiToken:
    """A token for a day."""
    now_ms = broker.engine.wall_ms
    values = {
        "digest": DIGEST,
        "scope": "writer:orders-",
        "created_ms": now_ms,
        "expires_ms": now_ms + DAY_MS,
    }
    return CreateApiToken(username=name, **{**values, **fields})


def test_no_reply_shows_the_hash_of_a_token(broker: SecuredBroker, root: Sender) -> None:
    by_key = replace(root, secret="")
    broker.create(root, "till", "writer")
    assert ask(broker, by_key, creation(broker)).code == Code.SUCCESS
    created = broker.events()[-1]
    replies = [
        ask(broker, by_key, ListApiTokens()),
        ask(broker, by_key, GetControlEvents(from_offset=0, max_count=100)),
        ask(broker, by_key, Undo(offset=created.offset)),
    ]
    assert not broker.access.tokens, "the undo revoked it"
    shown = [
        *(b"".join(one.body) + msgspec.json.encode([one.header, one.remark]) for one in replies),
        *(msgspec.json.encode(event_view(one)) for one in broker.events()),
    ]
    assert [one.code for one in replies] == [Code.SUCCESS] * 3, replies
    assert any(id_of(DIGEST).encode() in one for one in shown)
    state = broker.engine.control.copy()
    state.access.tokens["till:x"] = created.event.token
    shown.append(state_body(state, "user/till"))
    assert b'"scope"' in shown[-1]
    assert not [one for one in shown if DIGEST.encode() in one or DIGEST[16:].encode() in one]


# -- a user about itself --------------------------------------------------------------------------


def own_token(broker: SecuredBroker, number: int = 0, **fields: Any) -> CreateOwnToken:
    """A token of the sender for a day."""
    now_ms = broker.engine.wall_ms
    values = {
        "digest": token_digest(token_of(number.to_bytes(32, "big"))),
        "scope": "writer",
        "created_ms": now_ms,
        "expires_ms": now_ms + DAY_MS,
    }
    return CreateOwnToken(**{**values, **fields})


def own_tokens(broker: SecuredBroker, sender: Sender) -> list[str]:
    """The names of the tokens that a user gets to know of itself."""
    reply = ask(broker, sender, ListOwnTokens())
    assert reply.code == Code.SUCCESS, reply.remark
    return [one.name for one in decode_tokens(b"".join(reply.body))]


@pytest.fixture
def till(broker: SecuredBroker, root: Sender) -> Sender:
    """A user without any right, by its CURVE key."""
    return replace(broker.create(root, "till"), secret="")


def test_who_has_no_right_does_not_fill_the_log(broker: SecuredBroker, till: Sender) -> None:
    for number in range(OWN_CHANGES_HOUR_MAX):
        assert ask(broker, till, own_token(broker, number)).code == Code.SUCCESS
    for request, body in (
        (own_token(broker, OWN_CHANGES_HOUR_MAX), {}),
        (SetOwnPassword(), {"passwordHash": OF_NO_USER}),
    ):
        assert ask(broker, till, request, **body).code == Code.SYSTEM_BUSY
    [*_, last] = own_tokens(broker, till)
    taken = RevokeOwnToken(token_id=last.partition(":")[2])
    assert ask(broker, till, taken).code == Code.SUCCESS, "what was created can be taken back"
    broker.engine.wall_ms += 3_600_000
    assert ask(broker, till, own_token(broker, OWN_CHANGES_HOUR_MAX)).code == Code.SUCCESS


# -- secrets --------------------------------------------------------------------------------------


def test_no_secret_comes_out_again(
    broker: SecuredBroker, root: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "the-most-secret-of-all"
    with caplog.at_level(logging.DEBUG):
        user = broker.create(root, "till", secret=secret)
        account = UpdateAndCreateAclConfig(access_key="account", secret_key=secret)
        assert ask(broker, root, account).code == Code.SUCCESS
        by_key = replace(root, secret="")
        replies = [
            ask(broker, root, AuthGetUser(username="till")),
            ask(broker, root, AuthListUser()),
            ask(broker, root, AuthGetAcl(subject="User:till")),
            ask(broker, root, AuthListAcl()),
            ask(broker, root, GetBrokerConfig()),
            ask(broker, root, GetBrokerClusterAclInfo()),
            ask(broker, by_key, GetControlEvents(from_offset=0, max_count=100)),
            ask(broker, by_key, GetAccessStatus()),
            ask(broker, replace(user, secret=secret.upper()), AuthListUser()),
        ]
    said = [
        *(msgspec.json.encode([one.header, one.remark]) + b"".join(one.body) for one in replies),
        *(msgspec.json.encode(event_view(one)) for one in broker.events()),
        caplog.text.encode(),
        repr([broker.access, broker.events(), broker.engine.effects]).encode(),
        repr(account).encode(),
        repr(decode_user_change(msgspec.json.encode({"password": secret}))).encode(),
        b"".join(broker.engine.store.records.values()),
    ]
    assert [text for text in said if secret.encode() in text] == []
    sealed = [broker.access.secrets[name].ciphertext for name in ("till", "account")]
    assert sealed[0] != sealed[1]
    assert UserChange(secret=secret) != UserChange()
    assert not any(one.event.type == "UserSecretSet" and _shown(one) for one in broker.events())


def _shown(recorded: Any) -> str:
    """The ciphertext in what operators see of an event."""
    view = json.loads(msgspec.json.encode(event_view(recorded)))
    return str(view["event"]["secret"]["ciphertext"])
