"""The commands about users and ACLs of RocketMQ's mqadmin 5.3.3, the real tool, at our brokers.

What each prints is compared with what the broker's table has afterwards, which an administrator
reads by signed requests of its own. No reply has a secret, so the tool shows none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop import servers
from tests.interop.mqadmin import Tool

from kourou.access.model import User
from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import (
    decode_kept,
    decode_policies_of_users,
    decode_users,
)
from kourou.protocol.messages.access import AuthListAcl, AuthListUser
from kourou.protocol.request import Request
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.service.local_cluster import LocalCluster
from kourou.transport.remoting_client import RemotingConnection

ASK_MS = 30_000
APP, OTHER_ROOT = "app-1", "second-root"
SECRET, NEW_SECRET = "secret-of-the-app", "another-secret"

COMMANDS = {
    "createUser": "-b {a} -u somebody -p some-secret",
    "updateUser": "-b {a} -u ordinary -t Super",
    "deleteUser": "-b {a} -u ordinary",
    "getUser": "-b {a} -u ordinary",
    "listUser": "-b {a}",
    "copyUser": "-f {a} -t {b}",
    "createAcl": "-b {a} -s User:ordinary -r * -a All -d Allow",
    "updateAcl": "-b {a} -s User:ordinary -r * -a All -d Allow",
    "deleteAcl": "-b {a} -s User:ordinary",
    "getAcl": "-b {a} -s User:ordinary",
    "listAcl": "-b {a}",
    "copyAcl": "-f {a} -t {b}",
}
"""All commands about users and ACLs, with options that would work."""


@dataclass
class Scene:
    """Brokers, the tool, and who looks into their tables."""

    cluster: LocalCluster
    tool: Tool
    reader: tuple[str, str] = servers.ADMINISTRATOR

    def at(self, number: int) -> str:
        """The address of a broker."""
        return servers.tcp_address(self.cluster.brokers[number])

    def run(self, command: str, tool: Tool | None = None) -> str:
        """What the tool prints; `{a}` and `{b}` stand for the brokers."""
        addresses = [self.at(number) for number in range(len(self.cluster.brokers))]
        line = command.format(**dict(zip("ab", addresses, strict=False)))
        namesrv = servers.tcp_address(self.cluster.namesrv)
        ended, text = (tool or self.tool).run(f"{line} -n {namesrv}")
        assert ended, line
        return text

    def done(self, command: str) -> None:
        """Run a command that changes one broker, and says so."""
        what, _, of = re.split(r"([A-Z])", command.split()[0], maxsplit=1)
        kind = "user" if of == "ser" else "acl"
        broker = "a" if "-b {a}" in command else "b"
        text = self.run(command)
        assert f"{what} {kind} to {self.at('ab'.index(broker))} success." in lines(text), text
        assert "failed" not in text, text

    def finds_nothing(self, command: str) -> None:
        """Run a command that succeeds and has nothing to print or to do."""
        text = self.run(command)
        assert not re.search("^#|success|failed", text, re.MULTILINE), (command, text)

    def refused(self, command: str, *whys: str) -> None:
        """Run a command that the broker refuses: the tool prints why."""
        text = self.run(command)
        assert "command failed" in text, text
        assert "success" not in text, text
        for why in whys:
            assert why in text, (command, text)

    # -- the tables -------------------------------------------------------------------------------

    def ask(self, number: int, request: Request, user: str, secret: str) -> RemotingCommand:
        """The reply of a broker to a request that a user signs."""
        fields: dict[str, str] = {**encode_ext_fields(request), ACCESS_KEY: user}
        fields[SIGNATURE] = sign(fields, [b""], secret)

        async def exchanged() -> RemotingCommand:
            connection = RemotingConnection(self.at(number))
            try:
                command = RemotingCommand(request.code, ext_fields=fields)
                return await connection.exchange(command, timeout_ms=ASK_MS)
            finally:
                connection.close()

        return asyncio.run(exchanged())

    def read(self, number: int, request: Request) -> bytes:
        """The body of a reply to the administrator."""
        reply = self.ask(number, request, *self.reader)
        assert reply.code == Code.SUCCESS, reply.remark
        return bytes(reply.body)

    def users(self, number: int = 0) -> dict[str, User]:
        return {one.name: one for one in decode_users(self.read(number, AuthListUser()))}

    def kept(self, name: str, number: int = 0) -> tuple[str, ...]:
        """The kinds of credentials that a broker keeps of a user."""
        return decode_kept(self.read(number, AuthListUser())).get(name, ())

    def policies(self, number: int = 0) -> set[str]:
        """`app-1 allow Pub,Sub on Topic:orders from 10.0.0.0/8`."""
        return {
            f"{one.user} {one.effect} {','.join(one.actions)} on {one.resource}"
            + (f" from {','.join(one.networks)}" if one.networks else "")
            for one in decode_policies_of_users(self.read(number, AuthListAcl()))
        }

    def tables(self) -> list[object]:
        """All that commands may change."""
        numbers = range(len(self.cluster.brokers))
        return [(self.users(number), self.policies(number)) for number in numbers]

    def proves(self, secret: str, name: str = APP) -> bool:
        """Is it the user's secret? Whether the request is allowed does not matter."""
        remark = self.ask(0, AuthListUser(), name, secret).remark or ""
        return "Check signature failed" not in remark


@contextmanager
def scene(
    classes: str, folder: Path, *, brokers: int = 2, has_users: bool = True
) -> Iterator[Scene]:
    """Our servers, and the tool with the administrator's credentials."""
    with servers.secured_cluster(
        folder / "servers", brokers=brokers, has_users=has_users
    ) as cluster:
        tool = Tool(classes, folder / "tool", servers.ADMINISTRATOR if has_users else None)
        try:
            yield Scene(cluster, tool)
        finally:
            tool.close()


def lines(text: str) -> list[str]:
    """What the tool printed, without the ends of the lines."""
    return [line.strip() for line in text.splitlines()]


def row(text: str, *columns: str) -> bool:
    """Is there a line with these columns in what the tool printed?"""
    wanted = r"\s+".join(map(re.escape, columns))
    return re.search(rf"^{wanted}\s*$", text, re.MULTILINE) is not None


@pytest.mark.timeout(600)
def test_users_are_created_changed_shown_and_deleted(
    mqadmin_5_classes: str, tmp_path: Path
) -> None:
    with scene(mqadmin_5_classes, tmp_path, brokers=1) as it:
        assert set(COMMANDS) <= set(it.tool.names)
        root = servers.ADMINISTRATOR[0]

        it.done(f"createUser -b {{a}} -u {APP} -p {SECRET}")
        assert it.users()[APP] == User(name=APP)
        assert it.kept(APP) == ("secret",)
        assert it.proves(SECRET)
        it.done(f"createUser -b {{a}} -u {OTHER_ROOT} -p {SECRET} -t Super")
        assert it.users()[OTHER_ROOT].administers
        it.refused(f"createUser -b {{a}} -u {APP} -p {NEW_SECRET}", f"user {APP} exists")
        it.refused("createUser -b {a} -u weak -p short", "a secret has 7 to 256 printable")
        assert set(it.users()) == {root, APP, OTHER_ROOT}

        it.done(f"updateUser -b {{a}} -u {APP} -p {NEW_SECRET}")
        assert (it.proves(SECRET), it.proves(NEW_SECRET)) == (False, True)
        it.done(f"updateUser -b {{a}} -u {APP} -s disable")
        assert not it.users()[APP].enabled
        shown = it.run(f"getUser -b {{a}} -u {APP}")
        assert row(shown, "#UserName", "#Password", "#UserType", "#UserStatus"), shown
        assert row(shown, APP, "null", "Normal", "disable"), shown
        it.done(f"updateUser -b {{a}} -u {APP} -s enable")
        it.done(f"updateUser -b {{a}} -u {APP} -t Super")
        assert it.users()[APP].administers
        it.done(f"updateUser -b {{a}} -u {APP} -t Normal")
        assert it.users()[APP] == User(name=APP)
        it.refused("updateUser -b {a} -u nobody-here -s enable", "user 'nobody-here' not found")

        it.finds_nothing("getUser -b {a} -u nobody-here")  # as at RocketMQ's broker
        listed = it.run("listUser -b {a}")
        for name, kind in ((root, "Super"), (OTHER_ROOT, "Super"), (APP, "Normal")):
            assert row(listed, name, "null", kind, "enable"), listed
        found = it.run("listUser -c DefaultCluster -f app")
        assert row(found, APP, "null", "Normal", "enable"), found
        assert root not in found
        assert f"get user from {it.at(0)} success." in found
        assert not any(secret in listed + found + shown for secret in (SECRET, NEW_SECRET))

        it.done(f"deleteUser -b {{a}} -u {APP}")
        it.refused(f"deleteUser -b {{a}} -u {APP}", f"user '{APP}' not found")
        it.done(f"deleteUser -b {{a}} -u {OTHER_ROOT}")
        it.refused(f"deleteUser -b {{a}} -u {root}", "the last administrator")
        assert set(it.users()) == {root}


@pytest.mark.timeout(600)
def test_acls_are_created_changed_shown_and_deleted(mqadmin_5_classes: str, tmp_path: Path) -> None:
    with scene(mqadmin_5_classes, tmp_path, brokers=1) as it:
        it.done(f"createUser -b {{a}} -u {APP} -p {SECRET}")
        subject = f"User:{APP}"
        it.finds_nothing(f"getAcl -b {{a}} -s {subject}")
        it.done(
            f"createAcl -b {{a}} -s {subject} -r Topic:orders,Group:till* -a Pub,sub"
            " -i 10.0.0.0/8,192.168.0.7 -d Allow"
        )
        it.done(f"createAcl -b {{a}} -s {subject} -r Topic:secret* -a All -d deny")
        sources = "from 10.0.0.0/8,192.168.0.7/32"
        orders = f"{APP} allow Pub,Sub on Topic:orders {sources}"
        till = f"{APP} allow Pub,Sub on Group:till* {sources}"
        denied = f"{APP} deny Pub,Sub,Create,Update,Delete,Get,List on Topic:secret*"
        assert it.policies() == {orders, till, denied}
        it.done(f"updateAcl -b {{a}} -s {subject} -r Topic:orders -a Sub -d Allow")
        orders = f"{APP} allow Sub on Topic:orders"
        assert it.policies() == {orders, till, denied}

        shown = it.run(f"getAcl -b {{a}} -s {subject}")
        everything = "[Pub, Sub, Create, Update, Delete, Get, List]"
        addresses = "[10.0.0.0/8, 192.168.0.7/32]"
        for columns in (
            ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"),
            (subject, "Custom", "Topic:orders", "[Sub]", "null", "Allow"),
            (subject, "Custom", "Group:till*", "[Pub, Sub]", addresses, "Allow"),
            (subject, "Custom", "Topic:secret*", everything, "null", "Deny"),
        ):
            assert row(shown, *columns), (columns, shown)
        listed = it.run("listAcl -b {a} -s app -r Group")
        assert row(listed, subject, "Custom", "Group:till*", "[Pub, Sub]", addresses, "Allow")
        assert "Topic:" not in listed
        it.finds_nothing("listAcl -b {a} -s nobody")
        assert "Topic:orders" in it.run("listAcl -c DefaultCluster")

        for command, why in (
            ("getAcl -b {a} -s User:nobody-here", "user 'nobody-here' not found"),
            ("deleteAcl -b {a} -s User:nobody-here", "user 'nobody-here' not found"),
            (
                "createAcl -b {a} -s User:nobody-here -r Topic:a -a Pub -d Allow",
                "user 'nobody-here' not found",
            ),
            (f"createAcl -b {{a}} -s {subject} -r Queue:a -a Pub -d Allow", "is not a resource"),
            (f"createAcl -b {{a}} -s {subject} -r Topic:a -a Own -d Allow", "is not an action"),
            (f"createAcl -b {{a}} -s {subject} -r Topic:a -a Pub -d Perhaps", "decision is"),
            (
                f"createAcl -b {{a}} -s {subject} -r Cluster:DefaultCluster -a Get -d Allow",
                "the cluster has no name in policies",
            ),
            (
                f"createAcl -b {{a}} -s {subject} -r Topic:a -a Pub -i 300.0.0.1 -d Allow",
                "300.0.0.1",
            ),
        ):
            it.refused(command, why)
        assert it.policies() == {orders, till, denied}

        it.done(f"deleteAcl -b {{a}} -s {subject} -r Topic:orders")
        assert it.policies() == {till, denied}
        it.done(f"deleteAcl -b {{a}} -s {subject}")
        assert not it.policies()


@pytest.mark.timeout(600)
def test_users_and_acls_are_copied_without_secrets(mqadmin_5_classes: str, tmp_path: Path) -> None:
    with scene(mqadmin_5_classes, tmp_path) as it:
        a, b = it.at(0), it.at(1)
        for command in (
            f"createUser -b {{a}} -u {APP} -p {SECRET}",
            f"updateUser -b {{a}} -u {APP} -s disable",
            f"createUser -b {{a}} -u {OTHER_ROOT} -p {SECRET} -t Super",
            f"createAcl -b {{a}} -s User:{APP} -r Topic:orders -a Pub -i 10.0.0.0/8 -d Allow",
        ):
            it.done(command)

        copied = it.run(f"copyUser -f {{a}} -t {{b}} -u {APP},nobody-here")
        assert f"copy user of {APP} from {a} to {b} success." in lines(copied), copied
        assert copied.count("success") == 1, copied
        assert it.users(1)[APP] == it.users(0)[APP]
        assert OTHER_ROOT not in it.users(1)
        assert it.kept(APP, 1) == (), "no reply has a secret"
        it.done(f"updateUser -b {{b}} -u {APP} -p {NEW_SECRET}")
        copied = it.run("copyUser -f {a} -t {b}")
        for name in (servers.ADMINISTRATOR[0], APP, OTHER_ROOT):
            assert f"copy user of {name} from {a} to {b} success." in lines(copied), copied
        assert it.users(1) == it.users(0)
        assert it.kept(APP, 1) == ("secret",), "a copy takes nothing away"

        copied = it.run("copyAcl -f {a} -t {b}")
        assert f"copy acl of User:{APP} from {a} to {b} success." in lines(copied), copied
        assert copied.count("success") == 1, copied
        assert it.policies(1) == it.policies(0)
        assert len(it.policies(1)) == 1
        it.finds_nothing(f"copyAcl -f {{a}} -t {{b}} -s User:{OTHER_ROOT}")

        everywhere = it.run("createUser -c DefaultCluster -u both -p secret-of-both")
        for address in (a, b):
            assert f"create user to {address} success." in lines(everywhere), everywhere
        assert "both" in it.users(0)
        assert "both" in it.users(1)
        assert it.run("deleteUser -c DefaultCluster -u both").count("success.") == 2
        assert it.users(1) == it.users(0)


@pytest.mark.timeout(600)
def test_who_has_no_right_is_refused_and_changes_nothing(
    mqadmin_5_classes: str, tmp_path: Path
) -> None:
    """Without credentials, with unknown ones, with a wrong secret, and with rights on topics only;
    and who may change users gives no credentials.
    """
    with scene(mqadmin_5_classes, tmp_path) as it:
        for name in ("ordinary", "deputy"):
            it.done(f"createUser -b {{a}} -u {name} -p secret-of-{name}")
        it.done("createAcl -b {a} -s User:ordinary -r Topic:*,Group:* -a All -d Allow")
        it.done("createAcl -b {a} -s User:deputy -r User:* -a All -d Allow")
        before = it.tables()
        for name, credentials, why in (
            ("nobody", None, "user anonymous has no right to"),
            ("stranger", ("nemo", "whatever-it-is"), "Check signature failed for accessKey=nemo"),
            ("guesser", ("deputy", "a-guess"), "Check signature failed for accessKey=deputy"),
            ("ordinary", ("ordinary", "secret-of-ordinary"), "user ordinary has no right to"),
        ):
            other = Tool(mqadmin_5_classes, tmp_path / name, credentials)
            try:
                for command, options in COMMANDS.items():
                    text = it.run(f"{command} {options}", other)
                    assert f"CODE: 16  DESC: {why}" in text, (name, command, text)
                    assert "success" not in text, (name, command, text)
                    assert not re.search("^#", text, re.MULTILINE), (name, command, text)
            finally:
                other.close()
            assert it.tables() == before, name

        deputy = Tool(mqadmin_5_classes, tmp_path / "deputy", ("deputy", "secret-of-deputy"))
        try:
            assert row(it.run("listUser -b {a}", deputy), "ordinary", "null", "Normal", "enable")
            for command in ("createUser", "updateUser", "createAcl", "updateAcl", "deleteAcl"):
                text = it.run(f"{command} {COMMANDS[command]}", deputy)
                assert "only an administrator may change" in text, (command, text)
        finally:
            deputy.close()
        assert it.tables() == before


@pytest.mark.timeout(300)
def test_the_first_user_closes_an_open_broker(mqadmin_5_classes: str, tmp_path: Path) -> None:
    with scene(mqadmin_5_classes, tmp_path, brokers=1, has_users=False) as it:
        it.finds_nothing("listUser -b {a}")
        it.refused(
            f"createUser -b {{a}} -u {APP} -p {SECRET}", "the first user must be an administrator"
        )
        it.refused(
            f"createAcl -b {{a}} -s User:{APP} -r * -a All -d Allow", f"user '{APP}' not found"
        )
        it.done(f"createUser -b {{a}} -u {OTHER_ROOT} -p {SECRET} -t Super")
        it.refused("listUser -b {a}", "CODE: 16  DESC: user anonymous has no right to List on")
        it.refused(f"createUser -b {{a}} -u {APP} -p {SECRET}", "user anonymous has no right to")
        it.reader = (OTHER_ROOT, SECRET)
        assert {name: user.administers for name, user in it.users().items()} == {OTHER_ROOT: True}
        signing = Tool(mqadmin_5_classes, tmp_path / "signing", it.reader)
        try:
            listed = it.run("listUser -b {a}", signing)
            assert row(listed, OTHER_ROOT, "null", "Super", "enable"), listed
        finally:
            signing.close()
