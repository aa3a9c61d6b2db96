"""`kourou user` against two brokers with the real core: what it prints, refuses and returns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kourou.sync
from kourou.access.api_token import id_of, is_token, token_digest
from kourou.cli.main import main
from kourou.cli.users import changes_of
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import (
    AuditLine,
    PolicyChange,
    PolicyChangeKind,
    TriedUse,
    encode_tried,
)
from kourou.protocol.messages.access import (
    AuthListUser,
    GetAudit,
    GetAuditResponse,
    TryPolicies,
    TryPoliciesResponse,
)
from kourou.protocol.messages.broker_admin import GetStateAt, GetStateAtResponse
from kourou.service.passwords import is_password
from kourou.transport.curve_keys import read_pair
from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_core import connect_as
from kourou_rigs.wire_faults import Answer, Silence, always

TILL = "till" + "0" * 36
Run = Callable[..., tuple[int, str, str]]

PLAIN_ACL = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: billing-reader
    secretKey: 12345678
    whiteRemoteAddress: 192.168.0.*
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - orders=PUB|SUB
  - accessKey: operations
    secretKey: operations-secret
    admin: true
"""


PRINTED = """\
#UserName         #Password               #UserType               #UserStatus
owner             secret-of-owner         Super                   enable
till              secret-of-till          Normal                  disable

#Subject          #PolicyType             #Resource        #Actions     #SourceIp  #Decision
User:till         Custom                  Topic:orders*    [Pub, Sub]   null       Allow
User:till         Custom                  Namespace:n      [All]        null       Allow
"""


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the operator's CURVE keys; the command line uses them."""
    folder = tmp_path / "ops"
    assert main(("keys", "make", f"{tmp_path}/broker=*", str(folder), "--ring", "ops")) == 0
    monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", str(folder / "ops.ring"))
    return folder


@pytest.fixture
def run(run_at_cluster: Run, cluster: WireCluster, keys: Path) -> Run:
    """Run a command as the operator; returns exit code, output, and errors."""
    public = read_pair(keys / "ops.key_secret").public
    for broker in cluster.brokers.values():
        connect_as(broker, public)
    return partial(run_at_cluster, "user")


@pytest.fixture
def ops(run: Run, keys: Path) -> Run:
    """The same, after the first administrator was created."""
    assert run("create", "ops", "--admin", "--curve-key", f"{keys}/ops.key", "--no-secret")[0] == 0
    return run


def access(cluster: WireCluster, name: str = "broker-a") -> Any:
    broker: Any = cluster.brokers[f"{name}:20911"]
    return broker.engine.control.access


def secret_of(cluster: WireCluster, name: str) -> str:
    broker: Any = cluster.brokers["broker-a:20911"]
    return str(broker.engine.core.parts.access_gate._box.open(name, access(cluster).secrets[name]))


def hash_of(cluster: WireCluster, name: str) -> str:
    broker: Any = cluster.brokers["broker-a:20911"]
    return str(broker.engine.core.parts.access_gate.password_of(name))


# -- the first administrator ----------------------------------------------------------------------


def test_without_users_there_is_nothing_to_list(run: Run) -> None:
    assert run("list") == (0, "no users: nothing is decided yet\n", "")
    code, out, _ = run("status")
    assert code == 0
    assert out.splitlines()[1].split() == ["broker-a", "enforce", "off", "0", "0", "0", "0"]


def test_the_first_administrator_gets_a_secret_once(
    run: Run, keys: Path, cluster: WireCluster
) -> None:
    code, out, err = run("create", "ops", "--admin", "--curve-key", f"{keys}/ops.key", "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown == {"AccessKey": "ops", "SecretKey": secret_of(cluster, "ops")}
    code, out, _ = run("list")
    assert code == 0
    assert shown["SecretKey"] not in out
    public = read_pair(keys / "ops.key_secret").public
    assert out.splitlines()[1].split() == [
        *("ops", "service", "yes", "administrator", public, "-", "-", "all")
    ]


def test_a_first_administrator_who_could_not_come_back_is_refused(
    run: Run, keys: Path, cluster: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run("create", "ops", "--admin")
    assert code == 2
    assert "you could not manage users any more" in err
    assert read_pair(keys / "ops.key_secret").public in err
    monkeypatch.delenv("KOUROU_CURVE_KEY_FILE")
    code, _, err = run("create", "ops", "--admin", "--curve-key", f"{keys}/ops.key")
    assert code == 2
    assert "this command line has no CURVE key" in err
    assert access(cluster).users == {}


# -- users ----------------------------------------------------------------------------------------


def test_a_created_user_is_shown(ops: Run, cluster: WireCluster) -> None:
    words = (
        "--role",
        "writer:orders-",
        "--role",
        "reader",
        "--curve-key",
        TILL,
        "--kind",
        "person",
    )
    code, out, _ = ops("create", "till", *words)
    assert code == 0
    assert re.match(r"AccessKey +SecretKey\ntill +\S{32}\ncreated till\n", out)
    assert secret_of(cluster, "till") in out
    code, out, _ = ops("show", "till")
    assert code == 0
    assert "writer:orders-, reader" in out
    assert out.splitlines()[-1] == "no policies"


def test_a_secret_comes_from_a_file_and_is_not_printed(
    ops: Run, cluster: WireCluster, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("from-a-file\n")
    assert ops("create", "till", "--secret-file", str(file)) == (0, "created till\n", "")
    assert secret_of(cluster, "till") == "from-a-file"
    file.write_text("another-one")
    assert ops("set", "till", "--secret-file", str(file)) == (0, "changed till\n", "")
    assert secret_of(cluster, "till") == "another-one"
    code, out, _ = ops("set", "till", "--new-secret")
    assert code == 0
    assert secret_of(cluster, "till") in out
    file.write_text("short")
    code, out, err = ops("set", "till", "--secret-file", str(file))
    assert (code, out) == (2, "")
    assert "a secret has 7 to 256" in err


def test_without_access_keys_a_secret_is_refused_with_the_way_out(
    ops: Run, cluster: WireCluster, keys: Path
) -> None:
    public = read_pair(keys / "ops.key_secret").public
    for broker in cluster.brokers.values():
        connect_as(broker, public, keeps_secrets=False)
    code, out, err = ops("create", "till", "--curve-key", TILL)
    assert (code, out) == (1, "")
    assert "accessKeyFile is not set" in err
    assert "--no-secret" in err
    assert ops("create", "till", "--curve-key", TILL, "--no-secret")[0] == 0


def test_changes_of_a_user(ops: Run) -> None:
    ops("create", "till", "--no-secret", "--role", "writer", "--curve-key", TILL)
    assert ops("set", "till", "--disable", "--no-roles", "--no-curve-keys")[0] == 0
    _, out, _ = ops("list", "--json")
    assert json.loads(out.splitlines()[1]) == {
        "user": "till",
        "kind": "service",
        "enabled": False,
        "roles": None,
        "CURVE keys": None,
        "certificates": None,
        "node": None,
        "brokers": "all",
    }
    assert ops("set", "till", "--enable", "--admin")[0] == 0
    assert "administrator" in ops("show", "till")[1]
    assert ops("delete", "till") == (0, "deleted till\n", "")
    assert ops("show", "till")[0] == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("set", "till"), "nothing to change"),
        (("set", "till", "--role", "reader", "--no-roles"), "exclude each other"),
        (("set", "till", "--new-secret", "--secret-file", "x"), "exclude each other"),
        (("create", "new", "--no-secret", "--secret-file", "x"), "exclude each other"),
        (("create", "new", "--role", "captain"), "is not a role"),
        (("create", "new", "--kind", "robot"), "not a kind of user"),
        (("create", "new", "--curve-key", "short"), "not a CURVE public key"),
        (("create", "new", "--certificate-subject", "till"), "not the subject of a certificate"),
        (
            ("set", "till", "--certificate-subject", "CN=a", "--no-certificate-subjects"),
            "exclude each other",
        ),
        (("create", "new", "--secret-file", "/does/not/exist"), "cannot use /does/not/exist"),
        (("mode", "on"), "'on' is not a mode"),
        (("mode", "off", "--door", "window"), "'window' is not a door"),
        (("allow", "till", "Pub", "orders"), "is not a resource"),
        (("allow", "till", "Publish", "Topic:orders"), "is not an action"),
        (("allow", "till", "Pub", "Topic:orders", "--from", "10.0.0.1/8"), "is not a network"),
        (("allow", "till", "Pub", "Topic:orders", "--until", "soon"), "is not a time"),
    ],
)
def test_wrong_usage_changes_nothing(
    ops: Run, cluster: WireCluster, words: tuple[str, ...], text: str
) -> None:
    ops("create", "till", "--no-secret")
    version = access(cluster).version
    code, out, err = ops(*words)
    assert (code, out) == (2, "")
    assert text in err
    assert access(cluster).version == version


def test_a_password_comes_from_a_file_or_is_typed_twice(
    ops: Run, cluster: WireCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, typed = tmp_path / "password", ["from the keyboard"] * 2
    file.write_text("several long words\n")
    monkeypatch.setattr("kourou.cli.users.getpass", lambda _: typed.pop())
    code, out, _ = ops("create", "ann", "--no-secret", "--password-file", str(file))
    assert (code, out) == (0, "created ann\n")
    assert is_password("several long words", hash_of(cluster, "ann"))
    assert ops("set", "ann", "--ask-password") == (0, "changed ann\n", "")
    assert is_password("from the keyboard", hash_of(cluster, "ann"))
    typed[:] = ["from the keyboard", "from the keybord"]
    code, _, err = ops("set", "ann", "--ask-password")
    assert (code, "the two passwords differ" in err) == (2, True)
    file.write_text("short")
    code, _, err = ops("set", "ann", "--password-file", str(file))
    assert (code, "a password has 12 to 256 characters" in err) == (2, True)
    for words in (("--no-password", "--ask-password"), ("--ask-password", "--password-file", "x")):
        code, _, err = ops("set", "ann", *words)
        assert (code, "exclude each other" in err) == (2, True), words
    assert is_password("from the keyboard", hash_of(cluster, "ann"))
    assert ops("set", "ann", "--no-password")[0] == 0
    assert access(cluster).passwords == {}


def test_without_access_keys_a_password_is_refused(
    ops: Run, cluster: WireCluster, keys: Path, tmp_path: Path
) -> None:
    file, public = tmp_path / "password", read_pair(keys / "ops.key_secret").public
    file.write_text("several long words\n")
    for broker in cluster.brokers.values():
        connect_as(broker, public, keeps_secrets=False)
    code, out, err = ops("create", "ann", "--no-secret", "--password-file", str(file))
    assert (code, out) == (1, "")
    assert "cannot keep passwords: accessKeyFile is not set" in err
    assert "--no-secret" not in err
    assert ops("show", "ann")[0] == 1


def test_all_credentials_of_a_user_are_shown(
    ops: Run, cluster: WireCluster, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("several long words\n")
    assert ops("create", "ann", "--no-secret")[0] == 0
    assert json.loads(ops("show", "ann", "--json")[1])["kept"] is None
    assert ops("set", "ann", "--password-file", str(file))[0] == 0
    assert json.loads(ops("show", "ann", "--json")[1])["kept"] == "password"
    assert ops("set", "ann", "--new-secret")[0] == 0
    token = ops("token", "create", "ann", "--scope", "reader")[1].split()[1]
    assert ops("allow", "ann", "Sub", "Topic:news")[0] == 0
    user, listed, policy = map(json.loads, ops("show", "ann", "--json")[1].splitlines())
    assert (user["kept"], user["brokers"]) == ("secret, password", "all")
    assert (listed["token"], listed["scope"]) == (id_of(token_digest(token)), "reader")
    assert policy["resource"] == "Topic:news"
    text = ops("show", "ann")[1]
    assert [line.split()[0] for line in text.splitlines() if line] == ["user", "ann"] * 3
    for shown in (text, ops("show", "ann", "--json")[1]):
        assert token not in shown
        assert hash_of(cluster, "ann")[-43:] not in shown


def test_a_token_is_printed_once(ops: Run, cluster: WireCluster) -> None:
    assert ops("create", "till", "--role", "writer")[0] == 0
    assert ops("token", "list") == (0, "no tokens\n", "")
    code, out, err = ops("token", "create", "till", "--scope", "writer:orders-", "--json")
    assert (code, err) == (0, "")
    token = json.loads(out)["token"]
    assert is_token(token)
    identity = id_of(token_digest(token))
    code, listed, _ = ops("token", "list", "till", "--json")
    shown = json.loads(listed)
    assert (code, shown["user"], shown["token"]) == (0, "till", identity)
    assert (shown["scope"], shown["brokers"]) == ("writer:orders-", "all")
    assert token not in listed
    [kept] = access(cluster).tokens.values()
    assert kept.expires_ms - kept.created_ms == 90 * DAY_MS
    assert ops("token", "list", "ops") == (0, "no tokens\n", "")
    assert ops("token", "revoke", "till", identity) == (0, f"revoked till:{identity}\n", "")
    assert not access(cluster).tokens
    code, _, err = ops("token", "revoke", "till", identity)
    assert (code, f"has no token '{identity}'" in err) == (1, True)


def test_ones_own_password_and_tokens(
    ops: Run, cluster: WireCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("several long words\n")
    assert ops("create", "till", "--curve-key", TILL, "--no-secret")[0] == 0
    for broker in cluster.brokers.values():
        connect_as(broker, TILL)
    assert ops("set", "till", "--password-file", str(file))[0] == 1
    done = ops("password", "--password-file", str(file))
    assert done == (0, "changed your password\n", "")
    assert is_password("several long words", hash_of(cluster, "till"))
    typed = iter(["from the keyboard"] * 2)
    monkeypatch.setattr("kourou.cli.users.getpass", lambda _: next(typed))
    assert ops("password")[0] == 0
    assert is_password("from the keyboard", hash_of(cluster, "till"))
    assert ops("password", "--no-password", "--password-file", str(file))[0] == 2
    assert ops("password", "--no-password") == (0, "removed your password\n", "")
    assert access(cluster).passwords == {}

    code, out, _ = ops("token", "create", "--own", "--scope", "reader", "--json")
    assert code == 0
    identity = id_of(token_digest(json.loads(out)["token"]))
    assert json.loads(ops("token", "list", "--own", "--json")[1])["user"] == "till"
    assert ops("token", "list")[0] == 1, "those of all are for administrators"
    assert ops("token", "revoke", identity, "--own") == (0, f"revoked your token {identity}\n", "")
    assert ops("token", "list", "--own") == (0, "no tokens\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("create", "--scope", "reader"),
        ("create", "till", "--own", "--scope", "reader"),
        ("list", "till", "--own"),
        ("revoke", "9f86d081884c"),
        ("revoke", "till", "9f86d081884c", "--own"),
    ],
)
def test_a_token_is_of_a_user_or_ones_own(ops: Run, words: tuple[str, ...]) -> None:
    code, out, err = ops("token", *words)
    assert (code, out, "--own" in err) == (2, "", True), err


def test_subjects_of_certificates(ops: Run) -> None:
    shown = ["--certificate-subject", "cn=till, O=Example", "--certificate-subject", "CN=till,OU=2"]
    assert ops("create", "till", "--no-secret", *shown)[0] == 0
    listed = json.loads(ops("list", "--json")[1].splitlines()[1])
    assert listed["certificates"] == "CN=till,O=Example; CN=till,OU=2"
    assert ops("set", "till", "--certificate-subject", "CN=new")[0] == 0
    assert json.loads(ops("list", "--json")[1].splitlines()[1])["certificates"] == "CN=new"
    assert ops("set", "till", "--no-certificate-subjects")[0] == 0
    assert json.loads(ops("list", "--json")[1].splitlines()[1])["certificates"] is None


def test_a_secret_key_is_not_taken_for_a_public_one(ops: Run, keys: Path) -> None:
    code, _, err = ops("create", "till", "--curve-key", f"{keys}/ops.key_secret")
    assert code == 2
    assert "is a secret key" in err
    assert read_pair(keys / "ops.key_secret").secret not in err


def test_brokers_that_differ_are_shown(ops: Run, cluster: WireCluster) -> None:
    ops("create", "till", "--no-secret")
    access(cluster, "broker-b").users.pop("till")
    _, out, _ = ops("list")
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["all", "broker-a"]


def test_a_broker_that_does_not_reply_is_reported(ops: Run, cluster: WireCluster) -> None:
    cluster.brokers["broker-b:20911"].faults[AuthListUser] = [Silence]
    code, out, err = ops("list")
    assert code == 1
    assert "missing: broker-b: " in err
    assert out.splitlines()[1].endswith("broker-a")


# -- policies and decisions -----------------------------------------------------------------------


def test_policies_are_shown_and_revoked(ops: Run) -> None:
    ops("create", "till", "--no-secret")
    words = ("till", "pub,Sub", "Topic:orders", "--from", "10.0.0.0/8", "--from", "192.168.0.7")
    assert ops("allow", *words) == (0, "allowed till: pub,Sub on Topic:orders\n", "")
    assert ops("deny", "till", "All", "Topic:secret-*", "--until", "2099-01-01")[0] == 0
    assert ops("allow", "anonymous", "Sub", "Topic:news")[0] == 0
    _, out, _ = ops("show", "till", "--json")
    user, first, second = map(json.loads, out.splitlines())
    assert user["user"] == "till"
    assert (first["actions"], first["from"]) == ("Pub, Sub", "10.0.0.0/8, 192.168.0.7/32")
    assert (second["effect"], second["until"][:4]) == ("deny", "2099")
    assert "Topic:news" in ops("show", "anonymous")[1]
    code, _, err = ops("revoke", "till", "Topic:ordes")
    assert code == 1
    assert "till has no policy for Topic:ordes; nothing was removed" in err
    assert ops("revoke", "till", "Topic:orders") == (
        *(0, "revoked till: allow Pub, Sub on Topic:orders\n", ""),
    )
    assert ops("revoke", "till") == (
        0,
        "revoked till: deny Pub, Sub, Create, Update, Delete, Get, List on Topic:secret-*\n",
        "",
    )


def test_why_is_answered_by_the_exit_code_too(ops: Run) -> None:
    ops("create", "till", "--no-secret", "--role", "writer:orders-")
    code, out, _ = ops("why", "till", "Pub", "Topic:orders-1")
    assert code == 0
    assert out.splitlines()[1].split("  ")[0] == "allowed"
    assert "role writer on orders-*" in out
    code, out, _ = ops("why", "till", "Pub", "Topic:news", "--from", "10.0.0.1")
    assert code == 1
    assert "no policy allows it" in out
    code, _, err = ops("why", "till", "Pub", "Topic:news", "--from", "010.0.0.1")
    assert code == 1
    assert "is not an IP address" in err


def test_why_at_a_time_asks_for_the_state_of_that_time(ops: Run, cluster: WireCluster) -> None:
    times: list[int | None] = []

    def answer(request: GetStateAt) -> Answer:
        times.append(request.at_ms)
        return Answer(header=GetStateAtResponse(next_offset=1, at_ms=1), body=b"null")

    for broker in cluster.brokers.values():
        broker.faults[GetStateAt] = always(answer)
    code, out, _ = ops("why", "ops", "Pub", "Topic:orders", "--at", "2026-05-03T00:00+00:00")
    assert code == 1
    assert "the user does not exist" in out
    assert times == [1_777_766_400_000] * 2
    assert ops("why", "ops", "Pub", "Topic:orders")[0] == 0
    assert "is not a time" in ops("why", "ops", "Pub", "Topic:orders", "--at", "then")[2]


def test_the_audit_of_all_brokers_the_newest_first(run: Run, cluster: WireCluster) -> None:
    """Each broker is asked page after page, until it has no more, or enough were found."""
    asked: list[GetAudit] = []

    def pages(at_ms: int) -> Callable[[GetAudit], Answer]:
        def page(request: GetAudit) -> Answer:
            asked.append(request)
            at = at_ms + (10 if request.before else 20)
            line = AuditLine(at_ms=at, user="eve\n", source="::1", request="R", need="N", by="B")
            header = GetAuditResponse(before="" if request.before else "1:5")
            return Answer(header=header, body=msgspec.json.encode([line]))

        return page

    for number, broker in enumerate(cluster.brokers.values()):
        broker.faults[GetAudit] = always(pages(number))
    options = ("--since", "5", "--decision", "allowed", "--max", "2", "--json")
    code, out, err = run("audit", "--user", "eve", *options)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["broker"] for row in rows] == ["broker-b", "broker-a"] * 2
    assert (rows[0]["user"], rows[0]["decision"]) == ("eve\n", "refused")
    assert {(one.user, one.since_ms, one.decision) for one in asked} == {("eve", 5, "allowed")}
    assert [(one.before, one.max_count) for one in asked] == [("", 2), ("1:5", 1)] * 2
    asked.clear()
    table = run("audit", "--max", "1")[1].splitlines()
    assert len(table) == 3  # the columns, and one each
    assert r"  eve\n  " in table[1], "escaped once"
    assert [one.decision for one in asked] == ["", ""]
    assert run("audit", "--max", "0")[0] == 2
    code, _, err = run("audit", "--decision", "denied")
    assert code != 0
    assert "'denied' is not a decision" in err
    assert "all, refused, allowed" in err


def test_policies_are_tried_on_the_requests_of_the_last_days(
    run: Run, cluster: WireCluster, tmp_path: Path
) -> None:
    asked: list[TryPolicies] = []

    def use(allowed: bool, was_allowed: bool, count: int) -> TriedUse:
        return TriedUse(
            user="till\n",
            network="10.1.2.0/24",
            source=None,
            need="Pub on Topic:orders",
            by="no policy allows it",
            allowed=allowed,
            was_allowed=was_allowed,
            count=count,
            last_ms=5,
        )

    uses = [use(True, False, 40), use(False, True, 3), use(False, False, 7)]

    def answer(request: TryPolicies) -> Answer:
        asked.append(request)
        header = TryPoliciesResponse(requests=90, refused=10, untried=2, since_ms=5, more=True)
        return Answer(header=header, body=encode_tried(uses))

    for broker in cluster.brokers.values():
        broker.faults[TryPolicies] = always(answer)
    file = tmp_path / "changes"
    file.write_text(
        "# from kourou user observe\n\n"
        "kourou user allow till Pub,Sub 'Topic:orders*' --from 10.0.0.0/8 --until 9 --reason x\n"
        "deny till Sub Topic:orders-secret   # not these\n"
        "revoke till Group:g\nrevoke eve\n"
    )
    code, out, err = run("try", str(file), "--json")
    assert (code, err) == (1, ""), "some would be refused"
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["count"], row["would be"], row["now"]) for row in rows[:6:2]] == [
        (3, "refused", "allowed"),
        (7, "refused", "refused"),
        (40, "allowed", "refused"),
    ]
    assert rows[0]["user"] == "till\n"
    assert len(asked) == 2
    uses[:] = [use(True, False, 40), use(False, False, 7)]
    code, out, _ = run("try", "--days", "1")
    assert code == 0, "nothing that is allowed now"
    assert "10 of 90 requests would be refused, 2 could not be tried; counted since" in out
    assert 5.9 < ((asked[-1].since_ms or 0) - (asked[0].since_ms or 0)) / DAY_MS < 6.1
    assert changes_of(file.read_text()) == [
        PolicyChange(
            user="till",
            change=PolicyChangeKind.ALLOW,
            resource="Topic:orders*",
            actions=("Pub", "Sub"),
            networks=("10.0.0.0/8",),
            until_ms=9,
        ),
        PolicyChange(
            user="till",
            change=PolicyChangeKind.DENY,
            resource="Topic:orders-secret",
            actions=("Sub",),
        ),
        PolicyChange(user="till", change=PolicyChangeKind.REVOKE, resource="Group:g"),
        PolicyChange(user="eve", change=PolicyChangeKind.REVOKE),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "create eve",
        "allow till Pub",
        "allow till Pub Topic:a b",
        "revoke",
        "deny 'x",
        "allow --for 1",
    ],
)
def test_a_line_that_changes_no_policy_is_named(run: Run, tmp_path: Path, line: str) -> None:
    file = tmp_path / "changes"
    file.write_text(f"revoke eve\n{line}\n")
    code, _, err = run("try", str(file))
    assert code != 0
    assert "line 2 does not change policies" in err
    assert run("try", str(tmp_path / "none"))[0] != 0


def test_status_and_proposals_after_refusals(ops: Run, cluster: WireCluster, keys: Path) -> None:
    ops("create", "till", "--no-secret", "--curve-key", TILL)
    assert ops("observe") == (0, "# nothing was refused since the brokers started\n", "")
    assert ops("mode", "observe") == (0, "access mode is observe\n", "")
    enforced = ops("mode", "enforce", "--door", "remoting")
    assert enforced == (0, "access mode is enforce for remoting\n", "")
    shown = ops("status")[1].splitlines()[1].split()
    assert shown[:4] == ["broker-a", "observe", "remoting=enforce", "observe"]
    broker: Any = cluster.brokers["broker-a:20911"]
    client = kourou.sync.Client(None, group="till")  # type: ignore[call-arg]  # the test's own
    connect_as(broker, TILL)
    with client:
        client.admin.topics.create("orders", broker="broker-a")
    connect_as(broker, read_pair(keys / "ops.key_secret").public)
    _, out, _ = ops("status", "--json")
    refusal = json.loads(out.splitlines()[-1])
    assert (refusal["user"], refusal["needs"], refusal["handled"]) == (
        *("till", "Create on Topic:orders", True),
    )
    code, out, _ = ops("observe")
    assert code == 0
    assert out.splitlines()[0] == "kourou user allow till Create Topic:orders  # 1 request"


# -- import ---------------------------------------------------------------------------------------


def test_an_import_makes_users_and_policies(ops: Run, cluster: WireCluster, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(PLAIN_ACL)
    code, out, _ = ops("import", str(file), "--dry-run")
    assert code == 0
    assert "globalWhiteRemoteAddresses 10.10.103.* is not imported" in out
    assert "whiteRemoteAddress '192.168.0.*' of billing-reader is not imported" in out
    assert "dry run: nothing was changed" in out
    assert set(access(cluster).users) == {"ops"}
    code, out, _ = ops("import", str(file), "--accept-whitelist")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[1:3] == [
        ["billing-reader", "-", "2", "created"],
        ["operations", "administrator", "0", "created"],
    ]
    assert "12345678" not in out
    assert secret_of(cluster, "billing-reader") == "12345678"
    _, out, _ = ops("show", "billing-reader")
    assert "192.168.0.0/24" in out
    version = access(cluster).version
    code, out, _ = ops("import", str(file), "--accept-whitelist")
    assert (code, access(cluster).version) == (0, version)
    assert [line.split()[-1] for line in out.splitlines()[1:3]] == ["exists", "exists"]


def test_users_and_acls_that_mqadmin_printed_are_imported(
    ops: Run, cluster: WireCluster, tmp_path: Path
) -> None:
    file = tmp_path / "printed.txt"
    file.write_text(PRINTED)
    code, out, _ = ops("import", str(file), "--dry-run")
    assert code == 0
    assert "note: Namespace:n of till is not imported" in out
    assert set(access(cluster).users) == {"ops"}
    code, out, _ = ops("import", str(file))
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[1:3] == [["owner", "administrator", "0", "created"], ["till", "-", "1", "created"]]
    assert "secret-of" not in out
    users = access(cluster, "broker-b").users
    assert users["owner"].administers
    assert not users["till"].enabled
    assert secret_of(cluster, "till") == "secret-of-till"
    assert "Topic:orders*" in ops("show", "till")[1]


def test_entries_about_a_cluster_by_name_need_the_name_of_the_cluster(
    ops: Run, cluster: WireCluster, tmp_path: Path
) -> None:
    """Policies here are about the cluster of a broker, so another name would give more."""
    entries = [
        {"resource": "Cluster:DefaultCluster", "actions": ["Get"]},
        {"resource": "Cluster:Other", "actions": ["All"]},
    ]
    document = {
        "users": [{"username": "till", "password": "secret-of-till"}],
        "acls": [{"subject": "User:till", "policies": [{"entries": entries}]}],
    }
    file = tmp_path / "acl.json"
    file.write_text(json.dumps(document))
    code, out, err = ops("import", str(file))
    assert (code, out) == (2, "")
    assert "luster:DefaultCluster of till: policies are about the cluster" in err
    assert "--cluster NAME" in err
    assert set(access(cluster).users) == {"ops"}
    code, out, _ = ops("import", str(file), "--cluster", "DefaultCluster")
    assert code == 0
    assert "Cluster:Other of till is not imported" in out
    [policy] = access(cluster).policies.values()
    assert (str(policy.resource), policy.actions) == ("Cluster:*", ("Get",))


def test_an_import_needs_an_administrator_first(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(PLAIN_ACL)
    assert run("import", str(file), "--dry-run")[0] == 0
    code, _, err = run("import", str(file))
    assert code == 2
    assert "there is no administrator yet; nothing was imported" in err


def test_accounts_that_rocketmq_ships_are_refused(
    ops: Run, cluster: WireCluster, tmp_path: Path
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: [{accessKey: rocketmq2, secretKey: 12345678, admin: true}]")
    code, out, err = ops("import", str(file))
    assert (code, out) == (2, "")
    assert "accounts that RocketMQ ships (rocketmq2)" in err
    assert "12345678" not in err
    assert ops("import", str(file), "--accept-shipped")[0] == 0
    assert "rocketmq2" in access(cluster).users


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("accounts: [", "is not valid YAML, line 1"),
        ("a: &a [x]\nb: [*a, *a]", "has YAML aliases"),
        ("!!python/object/apply:os.system [true]", "is not valid YAML"),
        ("[" * 100_000, "in more than 8 levels"),
        ("2001-99-99", "is not valid YAML"),
        ("!!bool perhaps", "is not valid YAML"),
        ("!!timestamp today", "is not valid YAML"),
        ("!!int ''", "is not valid YAML"),
        ("!!float []", "is not valid YAML"),
        ("{[a]: b}", "is not valid YAML"),
        ("- accounts", "is not a mapping"),
        ("acounts: []", "unknown keys: acounts"),
        ("", "is not a mapping"),
        ("accounts: [{accessKey: 0x" + "f" * 4_000 + "}]", "cannot be converted: ValueError"),
        ('accounts: ["\\ud83d\\ude00"]', "line 1, has half a character as an escape"),
        ("accounts: [{accessKey: a-long-name, secretKey: 12345678, admins: 1}]", "unknown keys"),
        ("#" * (1 << 20) + "##", "has more than 1048576 bytes"),
    ],
)
def test_hostile_files_are_refused(
    ops: Run, cluster: WireCluster, tmp_path: Path, text: str, error: str
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(text)
    code, out, err = ops("import", str(file))
    assert (code, out) == (2, "")
    assert error in err
    assert set(access(cluster).users) == {"ops"}


# -- the way back ---------------------------------------------------------------------------------


def test_recover_writes_a_file_for_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    assert main(("user", "recover", str(store), "ops")) == 2
    assert "is not the store of a broker" in capsys.readouterr().err
    (store / "kourou").mkdir(parents=True)
    assert main(("user", "recover", str(store), "ops")) == 0
    out = capsys.readouterr().out
    file = store / "kourou" / "administrator"
    assert file.stat().st_mode & 0o777 == 0o600
    name, secret = file.read_text().strip().split(":")
    assert (name, f"SecretKey={secret}\n" in out) == ("ops", True)
    assert main(("user", "recover", str(store), "ops", "--curve-key", TILL)) == 2
    assert "exists already" in capsys.readouterr().err
    file.unlink()
    assert main(("user", "recover", str(store), "ops", "--curve-key", TILL)) == 0
    assert file.read_text() == f"ops:curve:{TILL}\n"
    assert "SecretKey" not in capsys.readouterr().out
