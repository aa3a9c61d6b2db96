"""The table of users: what events make of it, what is refused, what can be undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kourou.access.api_token import ApiToken, id_of, token_digest, token_of
from kourou.access.model import (
    ANONYMOUS,
    AccessMode,
    Action,
    Door,
    Effect,
    Pattern,
    Policy,
    RoleGrant,
    SealedSecret,
    User,
    UserKind,
    UserRole,
)
from kourou.authorization import access_table as rules
from kourou.authorization.access_table import AccessAggregate, access_of, snapshot
from kourou.engine.control import ControlState, evolve
from kourou.errors import BadRequest, DecodeError, Rejected
from kourou.events.control_events import (
    AccessEventBase,
    AccessModeSet,
    AccessRecovered,
    ApiTokenCreated,
    ApiTokenRevoked,
    Event,
    EventLost,
    PolicyPut,
    PolicyRemoved,
    Recorded,
    UnknownEvent,
    UserDeleted,
    UserPasswordSet,
    UserPut,
    UserSecretSet,
    decode_event,
    encode_event,
)
from kourou.model.units import DAY_MS

ROOT = User(name="root", roles=(RoleGrant(UserRole.ADMINISTRATOR),))
TILL = User(name="till", roles=(RoleGrant(UserRole.WRITER, "orders-"),))
SECRET = SealedSecret("k1", b"nonce", b"ciphertext")
KEY = "x" * 40


def policy(name: str = "till", resource: str = "Topic:orders", *actions: Action, **fields: Any):
    found = {"effect": Effect.ALLOW, **fields}
    return Policy(
        id=f"{name}/{resource}/{found['effect']}",
        user=name,
        resource=Pattern.parse(resource),
        actions=actions or (Action.PUB,),
        **found,
    )


def applied(access: AccessAggregate, events: list[Event]) -> AccessAggregate:
    for event in events:
        rules.evolve(access, event, 7)
    return access


@pytest.fixture
def access() -> AccessAggregate:
    """An administrator, and a user with a secret and a policy."""
    made = AccessAggregate()
    for event in (UserPut(ROOT), UserPut(TILL), UserSecretSet("till", SECRET)):
        rules.evolve(made, event, 5)
    rules.evolve(made, PolicyPut(policy()), 6)
    return made


# -- evolve ---------------------------------------------------------------------------------------


def test_every_event_counts_and_leaves_its_time(access: AccessAggregate) -> None:
    assert (access.version, access.changed_ms) == (4, 6)
    rules.evolve(access, AccessModeSet(AccessMode.OBSERVE, AccessMode.ENFORCE), 1)
    assert (access.version, access.changed_ms) == (5, 6)
    assert access.mode is AccessMode.OBSERVE


def test_a_door_has_the_mode_of_all_unless_it_has_its_own(access: AccessAggregate) -> None:
    applied(access, rules.decide_mode(access, AccessMode.OBSERVE))
    applied(access, rules.decide_mode(access, AccessMode.ENFORCE, Door.REMOTING))
    modes = {door: access.mode_of(door) for door in (*Door, None)}
    enforced = dict.fromkeys((Door.REMOTING, None), AccessMode.ENFORCE)
    observed = dict.fromkeys((Door.ZEROMQ, Door.HTTP), AccessMode.OBSERVE)
    assert modes == {**enforced, **observed}, "what came by an unknown door: the strictest"
    assert access.mode is AccessMode.OBSERVE
    applied(access, rules.decide_mode(access, AccessMode.OBSERVE, Door.REMOTING))
    assert access.doors == {}, "none of its own"
    applied(access, rules.decide_mode(access, AccessMode.OFF, Door.HTTP))
    applied(access, rules.decide_mode(access, AccessMode.OBSERVE))
    assert access.mode_of(Door.HTTP) is AccessMode.OBSERVE, "without a door it is for all"


def test_why_requests_of_everybody_are_handled(access: AccessAggregate) -> None:
    assert AccessAggregate().open_because == "there are no users"
    assert access.open_because == ""
    applied(access, rules.decide_mode(access, AccessMode.OBSERVE, Door.HTTP))
    assert access.open_because == "access mode http=observe"
    applied(access, rules.decide_mode(access, AccessMode.OFF))
    assert access.open_because == "access mode remoting=off zeromq=off http=off"
    access.unreadable = "control event 7"
    assert access.open_because == ""


def test_a_deleted_user_takes_secret_and_policies_along(access: AccessAggregate) -> None:
    [event] = rules.decide_delete_user(access, "till")
    assert event == UserDeleted(TILL, (policy(),))
    applied(access, [event])
    assert (set(access.users), access.secrets, access.policies) == ({"root"}, {}, {})


def test_without_users_nothing_is_decided_whatever_the_mode() -> None:
    access = AccessAggregate()
    applied(access, rules.decide_mode(access, AccessMode.OBSERVE, Door.HTTP))
    assert access.effective_mode is AccessMode.OFF
    assert {access.mode_of(door) for door in (*Door, None)} == {AccessMode.OFF}
    assert applied(access, [UserPut(ROOT)]).effective_mode is AccessMode.ENFORCE


@pytest.mark.parametrize("mode", AccessMode)
@pytest.mark.parametrize("of_doors", AccessMode)
def test_an_unknown_door_has_the_strictest_mode(
    access: AccessAggregate, mode: AccessMode, of_doors: AccessMode
) -> None:
    applied(access, rules.decide_mode(access, mode))
    for door in Door:
        applied(access, rules.decide_mode(access, of_doors, door))
    order = list(AccessMode)
    assert access.mode_of(None) is max(mode, of_doors, key=order.index)
    assert order == [AccessMode.OFF, AccessMode.OBSERVE, AccessMode.ENFORCE]


# -- events that cannot be read --------------------------------------------------------------------

UNREAD = UnknownEvent("UserPut", "user/till", b'{"type":"UserPut"}')


@pytest.mark.parametrize("event", [UNREAD, EventLost("damaged", about_users=True)])
def test_an_unreadable_event_about_users_closes_the_table(event: UnknownEvent | EventLost) -> None:
    """Also of a broker that has no users, as all events about them may be unreadable."""
    access = AccessAggregate()
    rules.evolve_unread(access, event, 12, 9)
    assert access.active
    assert {access.mode_of(door) for door in (*Door, None)} == {AccessMode.ENFORCE}
    assert access.effective_mode is AccessMode.ENFORCE
    assert "control event 12" in rules.why_closed(access)
    assert (access.version, access.changed_ms) == (1, 9)
    rules.evolve_unread(access, event, 13, 9)
    assert "control event 12" in access.unreadable, "the first one counts"


def test_an_event_of_which_nothing_is_known_closes_a_table_with_users(
    access: AccessAggregate,
) -> None:
    nobody = AccessAggregate()
    for event in (
        EventLost("damaged"),
        EventLost("damaged", about_users=False),
        UnknownEvent("LeaseGranted", "epoch", b"{}"),
    ):
        rules.evolve_unread(nobody, event, 3, 9)
    assert nobody == AccessAggregate()
    rules.evolve_unread(access, EventLost("damaged", about_users=False), 3, 9)
    assert not access.unreadable
    rules.evolve_unread(access, EventLost("damaged"), 4, 9)
    assert access.unreadable


def test_a_closed_table_stays_closed_in_copies_and_at_name_servers(
    access: AccessAggregate,
) -> None:
    mark = access.mark
    closed = access.copy()
    rules.evolve_unread(closed, UNREAD, 12, 0)
    assert closed.copy() == closed != access
    assert access_of(snapshot(closed)) == closed
    published = rules.decode_access(rules.encode_access(closed))
    assert published.unreadable == closed.unreadable
    assert published.mark == closed.mark
    rules.evolve(access, UserPut(ROOT))
    assert (closed.version, closed.changed_ms) == (access.version, access.changed_ms)
    assert len({mark, access.mark, closed.mark}) == 3, "what was read later is another table"


def test_the_owner_opens_it_for_one_administrator(access: AccessAggregate) -> None:
    """What could not be read may have taken any right away."""
    applied(access, rules.decide_put_user(access, User(name="ann")))
    applied(access, rules.decide_mode(access, AccessMode.OBSERVE))
    applied(access, rules.decide_mode(access, AccessMode.OFF, Door.HTTP))
    applied(access, rules.decide_put_policy(access, policy(ANONYMOUS)))
    denial = policy(ANONYMOUS, "Topic:secret", effect=Effect.DENY)
    applied(access, rules.decide_put_policy(access, denial))
    assert rules.decide_recovery(access, "ann") == []
    rules.evolve_unread(access, UNREAD, 12, 9)
    administrator = User(name="ann", roles=ROOT.roles)
    recovery = [UserPut(administrator), *rules.decide_recovery(access, "ann")]
    for event in recovery[:-1]:
        rules.evolve(access, event, 9)
        assert access.unreadable, "a broker that is killed now stays closed"
    rules.evolve(access, recovery[-1], 9)
    assert not access.unreadable
    assert [name for name, user in access.users.items() if user.enabled] == ["ann"]
    assert {access.mode_of(door) for door in (*Door, None)} == {AccessMode.ENFORCE}
    assert [one for one in access.policies.values() if one.user == ANONYMOUS] == [denial]
    assert policy().id in access.policies


def test_a_copy_is_independent(access: AccessAggregate) -> None:
    copied = access.copy()
    assert copied == access
    applied(copied, rules.decide_delete_user(copied, "till"))
    assert copied != access
    assert "till" in access.users


def test_snapshots_and_copies_have_everything_and_name_servers_all_but_passwords(
    access: AccessAggregate,
) -> None:
    assert access.mark == "6-4"
    applied(access, rules.decide_mode(access, AccessMode.OBSERVE))
    applied(access, rules.decide_mode(access, AccessMode.OFF, Door.HTTP))
    applied(access, [ApiTokenCreated(token()), ApiTokenCreated(token("root", number=1))])
    received = rules.decode_access(rules.encode_access(access))
    assert (received, received.mark) == (access, access.mark)
    assert rules.decode_access(rules.encode_access(AccessAggregate())).mark == "0-0"
    applied(access, [UserPasswordSet("till", SECRET)])
    assert access.copy() == access
    raw = msgspec.json.encode(snapshot(access))
    assert access_of(msgspec.json.decode(raw, type=rules.AccessSnapshot)) == access
    received = rules.decode_access(rules.encode_access(access))
    assert (received.passwords, received.secrets) == ({}, access.secrets)
    of_before = msgspec.json.decode(raw)
    del of_before["tokens"]
    found = access_of(msgspec.convert(of_before, rules.AccessSnapshot))
    assert (found.users, found.tokens) == (access.users, {}), "written before there were tokens"


@pytest.mark.fault
def test_a_table_that_grows_beyond_its_limit_is_refused(
    access: AccessAggregate, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = rules.encode_access(access)
    monkeypatch.setattr(rules, "USERS_BODY_BYTES_MAX", 10)
    with pytest.raises(DecodeError, match="longer than 10 bytes"):
        rules.decode_access(body)


def test_modes_of_doors_are_the_same_after_the_log() -> None:
    doors = ({Door.HTTP: AccessMode.OBSERVE}, {Door.ZEROMQ: AccessMode.OFF})
    event = AccessModeSet(AccessMode.OFF, AccessMode.ENFORCE, *doors)
    assert decode_event(encode_event(event), event.aggregate) == event


def test_the_control_state_carries_it_with_the_time_of_the_event() -> None:
    state = ControlState()
    evolve(state, Recorded(0, -1, 77, "a", "", "", UserPut(ROOT)))
    assert (state.access.changed_ms, list(state.access.users)) == (77, ["root"])
    assert state.copy().access == state.access


# -- decide ---------------------------------------------------------------------------------------


def test_the_first_user_must_be_an_administrator() -> None:
    access = AccessAggregate()
    with pytest.raises(BadRequest, match="the first user must be an administrator"):
        rules.decide_put_user(access, TILL)
    disabled = msgspec.structs.replace(ROOT, roles=(RoleGrant(UserRole.ADMINISTRATOR, "", 9),))
    with pytest.raises(BadRequest, match="the first user must be an administrator"):
        rules.decide_put_user(access, disabled)
    assert rules.decide_put_user(access, ROOT) == [UserPut(ROOT)]


@pytest.mark.parametrize(
    "changed",
    [
        msgspec.structs.replace(ROOT, enabled=False),
        msgspec.structs.replace(ROOT, roles=()),
        msgspec.structs.replace(ROOT, roles=(RoleGrant(UserRole.ADMINISTRATOR, "orders-"),)),
        msgspec.structs.replace(ROOT, roles=(RoleGrant(UserRole.ADMINISTRATOR, "", 99),)),
    ],
)
def test_the_last_administrator_stays(access: AccessAggregate, changed: User) -> None:
    for decide in (
        lambda: rules.decide_put_user(access, changed),
        lambda: rules.decide_delete_user(access, "root"),
        lambda: rules.decide_undo(access, UserPut(ROOT)),
        lambda: rules.decide_undo(access, UserPut(ROOT, changed)),
    ):
        with pytest.raises(BadRequest, match="the last administrator"):
            decide()
    applied(access, [UserPut(msgspec.structs.replace(ROOT, name="second"))])
    assert rules.decide_put_user(access, changed) == [UserPut(changed, ROOT)]


def test_what_is_there_already_makes_no_event(access: AccessAggregate) -> None:
    assert rules.decide_put_user(access, TILL) == []
    assert rules.decide_put_policy(access, policy()) == []
    assert rules.decide_mode(access, AccessMode.ENFORCE) == []
    assert rules.decide_mode(access, AccessMode.ENFORCE, Door.HTTP) == []
    assert rules.decide_remove_policy(access, "nothing") == []


def test_a_policy_needs_its_user_or_is_about_requests_without_credentials(
    access: AccessAggregate,
) -> None:
    with pytest.raises(BadRequest, match="user 'nemo' not found"):
        rules.decide_put_policy(access, policy("nemo"))
    [event] = rules.decide_put_policy(access, policy(ANONYMOUS))
    assert applied(access, [event]).policies[event.policy.id].user == ANONYMOUS


def test_a_key_belongs_to_one_user(access: AccessAggregate) -> None:
    with_key = msgspec.structs.replace(TILL, curve_keys=(KEY,))
    applied(access, rules.decide_put_user(access, with_key))
    assert access.user_of_key == {KEY: "till"}
    other = User(name="other", curve_keys=(KEY,))
    with pytest.raises(BadRequest, match="belongs to user till"):
        rules.decide_put_user(access, other)
    applied(access, rules.decide_put_user(access, TILL))
    assert rules.decide_put_user(access, other) == [UserPut(other)]


def test_a_subject_belongs_to_one_user(access: AccessAggregate) -> None:
    subjects = ("cn=till, O=Example", "CN=till,O=Example", "CN=till,OU=Shop")
    with_subjects = msgspec.structs.replace(TILL, certificate_subjects=subjects)
    applied(access, rules.decide_put_user(access, with_subjects))
    assert access.user_of_subject == {"CN=till,O=Example": "till", "CN=till,OU=Shop": "till"}
    assert access.can_prove("till")
    other = User(name="other", certificate_subjects=("O=Example",))
    assert rules.decide_put_user(access, other) == [UserPut(other)]
    other = User(name="other", certificate_subjects=("CN=till,O=Example",))
    with pytest.raises(BadRequest, match="certificates of CN=till,O=Example belong to user till"):
        rules.decide_put_user(access, other)
    applied(access, rules.decide_put_user(access, TILL))
    assert access.user_of_subject == {}
    assert rules.decide_put_user(access, other) == [UserPut(other)]


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (User(name=""), "not a user name"),
        (User(name="a" * 65), "not a user name"),
        (User(name="a:b"), "not a user name"),
        (User(name="a/b"), "not a user name"),
        (User(name="a\nb"), "not a user name"),
        (User(name=ANONYMOUS), "without credentials"),
        (User(name="n", kind=UserKind.NODE), "names its process"),
        (User(name="n", node="DefaultCluster/broker-a/1"), "names its process"),
        (User(name="n", curve_keys=("short",)), "is not a CURVE public key"),
        (User(name="n", certificate_subjects=("till",)), "is not the subject of a certificate"),
    ],
)
def test_users_that_cannot_be(access: AccessAggregate, user: User, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        rules.decide_put_user(access, user)


# -- undo -----------------------------------------------------------------------------------------


def test_undo_restores_what_was_replaced(access: AccessAggregate) -> None:
    demoted = msgspec.structs.replace(TILL, roles=())
    denied = policy(effect=Effect.DENY)
    applied(access, rules.decide_mode(access, AccessMode.OFF, Door.HTTP))
    for events in (
        rules.decide_put_user(access, demoted),
        rules.decide_put_user(access, User(name="new")),
        rules.decide_put_policy(access, denied),
        rules.decide_remove_policy(access, policy().id),
        rules.decide_mode(access, AccessMode.OBSERVE),
        rules.decide_mode(access, AccessMode.OBSERVE, Door.HTTP),
        rules.decide_mode(access, AccessMode.ENFORCE, Door.HTTP),
    ):
        before = access.copy()
        [event] = events
        applied(access, [event])
        applied(access, rules.decide_undo(access, event))
        assert replace(access, version=0, changed_ms=0) == replace(before, version=0, changed_ms=0)


def test_a_deleted_user_comes_back_without_the_secret(access: AccessAggregate) -> None:
    [event] = rules.decide_delete_user(access, "till")
    applied(access, [event])
    applied(access, rules.decide_undo(access, event))
    assert access.users["till"] == TILL
    assert list(access.policies.values()) == [policy()]
    assert access.secrets == {}
    assert rules.decide_undo(access, event) == []


def test_a_new_secret_cannot_be_taken_back(access: AccessAggregate) -> None:
    with pytest.raises(Rejected, match="UserSecretSet event cannot be undone"):
        rules.decide_undo(access, UserSecretSet("till", SECRET))


# -- passwords ------------------------------------------------------------------------------------


def test_a_password_is_kept_and_goes_with_its_user(access: AccessAggregate) -> None:
    event = UserPasswordSet("till", SECRET)
    applied(access, [event])
    assert access.passwords == {"till": SECRET}
    with pytest.raises(Rejected, match="UserPasswordSet event cannot be undone"):
        rules.decide_undo(access, event)
    removed = rules.decide_remove_password(access.copy(), "till")
    assert applied(access.copy(), removed).passwords == {}
    deleted = rules.decide_delete_user(access, "till")
    applied(access, deleted)
    applied(access, rules.decide_undo(access, deleted[0]))
    assert access.passwords == {}
    assert rules.decide_remove_password(access, "till") == []


# -- tokens ---------------------------------------------------------------------------------------

NOW = 1_700_000_000_000


def token(user: str = "till", number: int = 0, **fields: Any) -> ApiToken:
    digest = token_digest(token_of(bytes([number]) * 32))
    values = {
        "id": id_of(digest),
        "user": user,
        "digest": digest,
        "scope": RoleGrant(UserRole.WRITER, "orders-"),
        "created_ms": NOW,
        "expires_ms": NOW + DAY_MS,
    }
    return ApiToken(**{**values, **fields})


def test_a_token_is_found_by_its_whole_hash_until_it_is_revoked(access: AccessAggregate) -> None:
    made, other = token(), token(number=1)
    applied(access, rules.decide_create_token(access, made, NOW))
    applied(access, rules.decide_create_token(access, other, NOW))
    assert access.token_of_digest(made.digest) == made
    assert access.table.tokens == {made.name: made, other.name: other}
    for digest in ("", made.id, made.digest[:-1] + "x", made.id + other.digest[len(made.id) :]):
        assert access.token_of_digest(digest) is None, digest
    assert rules.decide_create_token(access, made, NOW) == [], "a repeated request"
    assert rules.decide_revoke_token(access, "root", made.id) == []
    [event] = rules.decide_revoke_token(access, "till", made.id)
    applied(access, [event])
    assert access.token_of_digest(made.digest) is None
    assert list(access.tokens) == [other.name]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (token("nemo"), "user 'nemo' not found"),
        (token("disabled"), "user disabled uses no console"),
        (token("node"), "user node uses no console"),
        (token("console"), "user console uses no console"),
        (token(created_ms=NOW - DAY_MS, expires_ms=NOW + 5), "clocks"),
        (token(created_ms=NOW + DAY_MS, expires_ms=NOW + 2 * DAY_MS), "clocks"),
        (token("root", number=7), "is a token"),
        (token(number=7, expires_ms=NOW + 1), "is a token"),
        (token(scope=RoleGrant(UserRole.CONSOLE)), "cannot be a console"),
    ],
)
def test_tokens_that_cannot_be(access: AccessAggregate, wanted: ApiToken, why: str) -> None:
    users = [
        User(name="disabled", enabled=False),
        User(name="node", kind=UserKind.NODE, node="c/b/0"),
        User(name="console", roles=(RoleGrant(UserRole.CONSOLE),)),
    ]
    applied(access, [*map(UserPut, users), ApiTokenCreated(token(number=7))])
    with pytest.raises(Rejected, match=why):
        rules.decide_create_token(access, wanted, NOW)


def test_there_are_only_so_many_tokens(
    access: AccessAggregate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "API_TOKENS_MAX", 2)
    monkeypatch.setattr(rules, "API_TOKENS_USER_MAX", 1)
    applied(access, rules.decide_create_token(access, token(), NOW))
    with pytest.raises(BadRequest, match="user till has 1 tokens"):
        rules.decide_create_token(access, token(number=1), NOW)
    applied(access, rules.decide_create_token(access, token("root", number=1), NOW))
    applied(access, [UserPut(User(name="billing"))])
    with pytest.raises(BadRequest, match="there are 2 tokens"):
        rules.decide_create_token(access, token("billing", number=2), NOW)


def test_expired_tokens_do_not_count_and_make_room(
    access: AccessAggregate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of others: who lets many expire keeps nobody from creating another one."""
    monkeypatch.setattr(rules, "API_TOKENS_MAX", 3)
    monkeypatch.setattr(rules, "API_TOKENS_USER_MAX", 3)
    monkeypatch.setattr(rules, "API_TOKENS_DROPPED_MAX", 2)
    ends = [NOW + 30, NOW + 10, NOW + 20]
    expiring = [token(number=one, expires_ms=end) for one, end in enumerate(ends)]
    for one in expiring:
        applied(access, rules.decide_create_token(access, one, NOW))
    last = token("root", number=9)
    with pytest.raises(BadRequest, match="there are 3 tokens"):
        rules.decide_create_token(access, last, NOW + 9)
    assert rules.decide_create_token(access, last, NOW + 10) == [
        ApiTokenRevoked("till", expiring[1].id),
        ApiTokenCreated(last),
    ]
    applied(access, rules.decide_create_token(access, last, NOW + 30))
    assert set(access.tokens) == {expiring[0].name, last.name}, "the oldest two are dropped"


def test_what_was_revoked_does_not_come_back(access: AccessAggregate) -> None:
    """Neither by an undo of the revocation, nor with its user."""
    made = token()
    [created] = rules.decide_create_token(access, made, NOW)
    applied(access, [created])
    [revoked] = rules.decide_undo(access, created)
    assert revoked == ApiTokenRevoked("till", made.id)
    demoted = msgspec.structs.replace(TILL, roles=())
    [changed] = rules.decide_put_user(access, demoted)
    applied(access, [changed, revoked])
    with pytest.raises(Rejected, match="ApiTokenRevoked event cannot be undone"):
        rules.decide_undo(access, revoked)
    assert rules.decide_undo(access, created) == []
    applied(access, rules.decide_undo(access, changed))
    assert (access.users["till"], access.tokens) == (TILL, {})


def test_a_deleted_user_takes_its_tokens_along(access: AccessAggregate) -> None:
    ours, others = token(), token("root", number=1)
    applied(access, [ApiTokenCreated(ours), ApiTokenCreated(others)])
    [deleted] = rules.decide_delete_user(access, "till")
    applied(access, [deleted])
    assert access.tokens == {others.name: others}
    applied(access, rules.decide_undo(access, deleted))
    assert access.tokens == {others.name: others}


# -- what gates remember --------------------------------------------------------------------------

EVERY_EVENT = (
    UserPut(ROOT),
    UserDeleted(TILL),
    UserSecretSet("till", SECRET),
    UserPasswordSet("till", SECRET),
    ApiTokenCreated(token()),
    ApiTokenRevoked("till", token().id),
    PolicyPut(policy()),
    PolicyRemoved(policy()),
    AccessModeSet(AccessMode.OBSERVE, AccessMode.ENFORCE),
    AccessRecovered("control event 1"),
)


def test_every_change_empties_what_was_remembered(access: AccessAggregate) -> None:
    assert {type(event) for event in EVERY_EVENT} == set(AccessEventBase.__subclasses__())
    kept = access.remembered
    for event in EVERY_EVENT:
        kept["claim"] = event
        rules.evolve(access, event, 7)
        assert kept == {}, event
        assert access.remembered is kept, "a gate keeps it"
    kept["claim"] = UNREAD
    rules.evolve_unread(access, UNREAD, 12, 9)
    assert kept == {}


def test_what_is_remembered_is_no_part_of_the_table(access: AccessAggregate) -> None:
    copy = access.copy()
    access.remembered["claim"] = 1
    assert copy == access == access_of(snapshot(access))
    assert (copy.remembered, access.copy().remembered) == ({}, {})
    rules.evolve(copy, UserPut(ROOT), 7)
    assert access.remembered == {"claim": 1}
