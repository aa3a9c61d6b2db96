"""Users of the brokers at a console: each may do there what it may do anywhere, and no more.

A name server, a broker and a console as processes that know one another by CURVE keys. The console
has the role console, and may read the cluster's figures for its samples.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from http.cookies import SimpleCookie
from itertools import pairwise
from pathlib import Path

import pytest

from kourou import Client, ClientSettings
from kourou.access.api_token import id_of, token_digest, token_of
from kourou.errors import NoPermission
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.access_bodies import AuditLine
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.passwords import new_hash
from kourou.transport.curve_keys import make_pair, read_pair
from kourou.transport.tls import ClientAuth, TlsMode
from kourou_console.config import SignInMode
from kourou_console.http.sign_in import OF_PLACE
from kourou_console.operation import Operation
from kourou_console.operations import OPERATIONS
from kourou_rigs.certificates import Authority
from kourou_rigs.console import ConsoleHere, HttpAnswer, HttpClient
from kourou_rigs.key_folder import first_user
from kourou_rigs.waiting import until

PAIRS = ("server", "console", "ops", "app")
READER, TILL, BILLING, NOBODY = "reader-1", "till", "billing", "nobody"
PATH_VALUES = {
    "topic": "orders-a",
    "group": "billing",
    "broker": "broker-a",
    "queue": "0",
    "id": "7F000001000027100000000000FFFFFF",
    "name": "late",
    "client": "c",
    "table": "t",
    "namespace": "n",
    "key": "k",
    "lease": "l",
    "transaction_id": "t",
    "kind": "user",
}


def secret_of(name: str) -> str:
    return f"the-secret-of-{name}"


class Secured:
    """The cluster, its clients and its HTTP callers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in PAIRS:
            make_pair(folder / "keys" / name, name, ["127.0.0.1"] if name == "server" else [])
        server = {
            "curveKeyFile": str(self.pair("server")),
            "curveServerKey": str(self.servers),
            "curveClients": "any",
            "tcpEnable": "false",
        }
        broker = first_user(folder, f"ops:curve:{read_pair(self.pair('ops')).public}")
        console = {
            "curveKeyFile": str(self.pair("console")),
            "curveServerKey": str(self.servers),
            "signIn": "users",
            "sampleInterval": "1000",
        }
        settings = ClusterSettings(
            namesrv=server, broker={**server, **broker}, console=console, small_segments=True
        )
        self.cluster = LocalCluster(folder / "cluster", settings)
        assert self.cluster.console is not None
        self.address = str(self.cluster.console.ready["http"]).removeprefix("http://")

    @property
    def servers(self) -> Path:
        return self.folder / "keys" / "server" / "server.key"

    def pair(self, name: str) -> Path:
        return self.folder / "keys" / name / f"{name}.key_secret"

    def client(self, name: str, on_behalf_of: str = "") -> Client:
        settings = ClientSettings(
            curve_key_file=str(self.pair(name)),
            curve_server_key=str(self.servers),
            on_behalf_of=on_behalf_of,
        )
        return Client(self.cluster.address, settings=settings)

    def http(self, user: str, secret: str = "") -> HttpCaller:
        return HttpCaller(self.address, user, secret or secret_of(user))


class HttpCaller(HttpClient):
    """A program with a user and its secret."""

    def __init__(self, address: str, user: str, secret: str) -> None:
        super().__init__(address)
        text = base64.b64encode(f"{user}:{secret}".encode()).decode()
        self.basic = {"Authorization": f"Basic {text}"}

    def request(self, method: str, path: str, **options: object) -> HttpAnswer:
        headers = options.pop("headers", None) or self.basic
        return super().request(method, path, headers=headers, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        asyncio.run(populate(made))
        yield made
    finally:
        made.cluster.stop()


async def populate(made: Secured) -> None:
    """Create the users and a topic."""
    console, app = (read_pair(made.pair(name)).public for name in ("console", "app"))
    async with made.client("ops") as mq:
        users = mq.admin.users
        await users.set("ops", secret=secret_of("ops"))
        await users.create("console-1", roles=["console", "reader"], curve_keys=[console])
        await users.create("app", roles=["writer", "operator"], curve_keys=[app])
        await users.create(READER, secret=secret_of(READER), roles=["reader"])
        await users.create(NOBODY, secret=secret_of(NOBODY))
        await users.create(TILL, secret=secret_of(TILL))
        await users.allow(TILL, "Topic:orders-*", "Pub,Create")
        await users.create(BILLING, secret=secret_of(BILLING))
        await users.allow(BILLING, "Topic:orders-a", "Pub,Sub")
        await users.allow(BILLING, "Group:billing", "Sub,Get,Create")
        await mq.admin.topics.create("orders-a", queues=1)


# -- who ------------------------------------------------------------------------------------------


def test_user_and_secret_of_a_program_are_those_of_the_brokers(secured: Secured) -> None:
    me = secured.http(TILL).get("/v1/me")
    assert (me.status, me.json["name"], me.json["token_required"]) == (200, TILL, True)
    nobody_said = HttpClient(secured.address).get("/v1/me")
    assert nobody_said.status == 401
    assert nobody_said.headers["www-authenticate"].startswith("Basic ")
    wrong, unknown = secured.http(TILL, "guessed"), secured.http("nobody-there", "guessed")
    answers = [one.get("/v1/me") for one in (wrong, unknown)]
    assert [one.status for one in answers] == [401, 401]
    assert answers[0].body == answers[1].body
    for path in ("/healthz", "/readyz", "/", "/openapi.json"):
        assert HttpClient(secured.address).get(path).status == 200, path


def test_processes_of_the_cluster_do_not_sign_in(secured: Secured) -> None:
    assert secured.http("console-1").get("/v1/me").status == 401


def test_a_refused_sign_in_does_not_tell_who_exists(secured: Secured) -> None:
    """A user with another secret, a user without one, a console, and names that nobody has."""
    answers = [
        secured.http(name, "guessed").get("/v1/me")
        for name in (READER, "app", "console-1", "nobody-here", "x" * 64)
    ]
    assert {one.status for one in answers} == {401}
    assert len({one.body for one in answers}) == 1
    headers = [{**one.headers, "date": ""} for one in answers]
    assert all(one == headers[0] for one in headers)


async def test_a_disabled_user_and_a_former_secret_end(secured: Secured) -> None:
    name = "guest"
    async with secured.client("ops") as mq:
        users = mq.admin.users
        await users.create(name, secret=secret_of(name), roles=["writer"])
        guest = secured.http(name)
        path = "/v1/topics/orders-a/messages"
        assert guest.post(path, body=b"x").status == 200
        await users.set(name, enabled=False)
        assert guest.post(path, body=b"x").status in (401, 403)  # at once, by the broker
        while guest.get("/v1/me").status == 200:  # by the console, within a second
            pass
        await users.set(name, enabled=True, secret="a-renewed-secret")
        assert guest.get("/v1/me").status == 401
        renewed = secured.http(name, "a-renewed-secret")
        assert renewed.post(path, body=b"x").status == 200


async def test_a_certificate_is_its_user_at_the_brokers(secured: Secured, tmp_path: Path) -> None:
    """A console that serves TLS, of the same cluster."""
    authority, name = Authority(tmp_path / "tls", "own"), "certified"
    certificate, key = authority.pair("console")
    own = authority.trusted(authority.pair("own", subject=f"CN={name},O=Example"))
    async with secured.client("ops") as mq:
        users = mq.admin.users
        await users.create(name, certificate_subjects=[f"cn={name}, O=Example"])
        await users.allow(name, "Topic:orders-a", "Pub")
        with ConsoleHere(
            None,
            namesrv_addr=secured.cluster.address,
            tls=own,
            sign_in=SignInMode.USERS,
            curve_key_file=secured.pair("console"),
            curve_server_key=secured.servers,
            tls_mode=TlsMode.ENFORCING,
            tls_cert_path=certificate,
            tls_key_path=key,
            tls_trust_cert_path=authority.path,
            tls_need_client_auth=ClientAuth.OPTIONAL,
        ) as console:
            assert console.get("/v1/me").json["name"] == name
            assert console.post("/v1/topics/orders-a/messages", body=b"x").status == 200
            assert console.post("/v1/topics/bills/messages", body=b"x").status == 403
            other = authority.trusted(authority.pair("other", subject=f"CN={name}"))
            assert HttpClient(console.address, tls=other).get("/v1/me").status == 401
            await users.set(name, enabled=False)
            refused = console.post("/v1/topics/orders-a/messages", body=b"x")
            assert refused.status in (401, 403)  # at once, by the broker
            while console.get("/v1/me").status == 200:  # by the console, within a second
                pass


def test_wrong_secrets_are_delayed(secured: Secured) -> None:
    thief = secured.http("whom-no-other-test-tries", "guessed")
    assert [thief.get("/v1/me").status for _ in range(OF_PLACE.free)] == [401] * OF_PLACE.free
    delayed = thief.get("/v1/me")
    assert (delayed.status, int(delayed.headers["retry-after"])) == (429, 2)
    assert secured.http(TILL).get("/v1/me").status == 200


async def test_a_password_is_for_the_console_only(secured: Secured) -> None:
    name, password = "ann", "several long words"
    async with secured.client("ops") as mq:
        users = mq.admin.users
        await users.create(name, password_hash=new_hash(password), roles=["writer"])
        ann = secured.http(name, password)
        assert ann.get("/v1/me").json["name"] == name
        assert ann.post("/v1/topics/orders-a/messages", body=b"x").status == 200
        assert secured.http(name, f"{password}.").get("/v1/me").status == 401
        await users.set(name, password_hash=new_hash("other long words"))
        while ann.get("/v1/me").status == 200:  # within a second
            pass
        assert ann.get("/v1/me").status == 401
        page = await mq.admin.history.of(f"user/{name}")
        assert "argon2id" not in repr(page)
    assert secured.http(name, "other long words").get("/v1/me").status == 200


async def test_a_user_gives_itself_a_password_and_a_token_but_not_by_the_console(
    secured: Secured,
) -> None:
    name, password, orders = "selfish", "several long words", "/v1/topics/orders-a/messages"
    make_pair(secured.folder / "keys" / name, name, [])
    key = read_pair(secured.pair(name)).public
    async with secured.client("ops") as mq:
        await mq.admin.users.create(name, curve_keys=[key])
        await mq.admin.users.allow(name, "Topic:orders-a", "Pub")
    async with secured.client("console", on_behalf_of=name) as mq:
        for refused in (
            mq.admin.users.set_own_password(new_hash(password)),
            mq.admin.users.create_own_token(scope="writer", days=1),
            mq.admin.users.own_tokens(),
        ):
            with pytest.raises(NoPermission, match="not sent on behalf of a user"):
                await refused
    async with secured.client(name) as mq:
        await mq.admin.users.set_own_password(new_hash(password))
        token = await mq.admin.users.create_own_token(scope="writer", days=1)
        bearer = {"Authorization": f"Bearer {token}"}
        assert secured.http(name, password).post(orders, body=b"x").status == 200
        api = HttpClient(secured.address)
        assert api.post(orders, body=b"x", headers=bearer).status == 200
        assert api.post("/v1/topics/bills/messages", body=b"x", headers=bearer).status == 403
        [one] = (await mq.admin.users.own_tokens())["broker-a"]
        await mq.admin.users.revoke_own_token(one.id)
        assert api.post(orders, body=b"x", headers=bearer).status in (401, 403)


async def test_what_the_console_refuses_is_in_the_audit_of_a_broker(secured: Secured) -> None:
    api, unknown = HttpClient(secured.address), token_of(bytes([9]) * 32)
    foreign = {**secured.http(TILL).basic, "Origin": "https://evil.example"}
    assert api.get("/v1/me", headers=foreign).status == 403
    assert api.get("/v1/me", headers={"Authorization": f"Bearer {unknown}"}).status == 401
    async with secured.client("ops") as mq, asyncio.timeout(60):

        async def audited(request: str, by: str) -> AuditLine:
            while True:  # a console reports once a second
                lines = await mq.admin.users.audit(request=request, decision="refused")
                for one in lines["broker-a"]:
                    if by in one.by:
                        return one

        page = await audited("HttpRequest", "a page of 'https://evil.example'")
        assert (page.user, page.source, page.door) == ("anonymous", "127.0.0.1", "http")
        token = await audited("CheckCredential", id_of(token_digest(unknown)))
        assert (token.user, page.console, token.console) == ("anonymous", *["console-1"] * 2)


async def test_nobody_reads_users_by_a_console_in_any_mode(secured: Secured) -> None:
    messages = "/v1/topics/{}/queues/broker-a/0/messages"
    async with secured.client("ops") as mq:
        users = mq.admin.users
        for mode in ("observe", "off"):
            await users.mode(mode)
            try:
                assert secured.http(NOBODY).get(messages.format("orders-a")).status == 200
                for name in (NOBODY, READER, "ops"):
                    answer = secured.http(name).get(messages.format("rmq_sys_kourou_control"))
                    assert answer.status == 403, (mode, name)
            finally:
                await users.mode("enforce")


async def test_an_api_token_is_its_user_within_its_scope(secured: Secured) -> None:
    orders, bills = (f"/v1/topics/{name}/messages" for name in ("orders-a", "bills"))
    async with secured.client("ops") as mq:
        users = mq.admin.users
        token = await users.create_token("app", scope="writer:orders-", days=1)
        bearer = {"Authorization": f"Bearer {token}"}
        api = HttpClient(secured.address)
        name = api.get("/v1/me", headers=bearer).json["name"]
        assert name.startswith("app:")
        assert api.post(orders, body=b"x", headers=bearer).status == 200
        for refused in (
            api.post(bills, body=b"x", headers=bearer),
            api.put("/v1/topics/orders-c", json={}, headers=bearer),
            api.get("/v1/overview", headers=bearer),
        ):
            assert refused.status == 403, refused.text
        [newest] = (await users.audit(user=name, request="SendRecords", max_count=1))["broker-a"]
        assert newest.need.endswith("on Topic:bills")
        await users.revoke_token("app", name.removeprefix("app:"))
        refused = api.post(orders, body=b"x", headers=bearer)
        assert refused.status in (401, 403)  # at once, by the broker
        while (refused := api.get("/v1/me", headers=bearer)).status == 200:  # within a second
            pass
        assert (refused.status, refused.json["detail"]) == (401, "unknown or revoked token")
        for file in secured.folder.rglob("*"):
            assert not file.is_file() or token.encode() not in file.read_bytes(), file


# -- what -----------------------------------------------------------------------------------------


async def test_what_a_writer_does_is_the_writers(secured: Secured) -> None:
    till = secured.http(TILL)
    sent = till.post("/v1/topics/orders-new/messages", body=b"two coffees")
    assert sent.status == 200, sent.text
    refused = till.post("/v1/topics/bills/messages", body=b"x")
    assert refused.status == 403
    assert "user till has no right to" in refused.json["detail"]
    async with secured.client("ops") as mq:
        page = await mq.admin.history.of("topic/orders-new")
        assert {one.actor for one in page.decisions} == {"User:till through User:console-1"}


def test_a_reader_reads_figures_and_changes_nothing(secured: Secured) -> None:
    reader = secured.http(READER)
    for path in ("/v1/overview", "/v1/topics", "/v1/groups", "/v1/alarms", "/v1/brokers"):
        assert reader.get(path).status == 200, path
    assert "orders-a" in reader.get("/v1/topics").text
    for answer in (
        reader.post("/v1/topics/orders-a/messages", body=b"x"),
        reader.put("/v1/topics/orders-b", json={}),
        reader.put("/v1/name-servers/values/shop/key", json={"value": "v"}),
        reader.delete("/v1/topics/orders-a"),
        reader.get("/v1/spark/tables/orders"),
    ):
        assert answer.status == 403, answer.text
    topics = reader.get("/v1/topics").text
    assert "orders-b" not in topics
    values = reader.get("/v1/name-servers/values", query={"namespace": "shop"})
    assert values.status != 200 or values.json["items"] == []


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_a_user_without_rights_sees_and_changes_nothing(secured: Secured, one: Operation) -> None:
    """Whatever the console knows by itself, or name servers would do for it."""
    path = one.path
    for name, value in PATH_VALUES.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path
    body = None if one.method in ("GET", "DELETE") else {}
    options = {} if body is None else {"json": body}
    answer = secured.http(NOBODY).request(one.method, path, **options)
    if one.needed:
        assert answer.status == 403, answer.text
        return
    assert answer.status in (200, 400, 403, 404, 409, 410, 422), (answer.status, answer.text)
    if answer.status == 200 and one.name != "who_am_i":
        assert not answer.json.get("items"), answer.text


async def test_no_answer_has_a_name_that_its_reader_has_no_right_to(secured: Secured) -> None:
    """Lists, totals, figures and exports, for users with rights on other topics and groups."""
    async with secured.client("ops") as mq:
        await mq.admin.topics.create("rival-topic", queues=1)
        await mq.admin.groups.create("rival-group")
        of_billing = MessageQueue("orders-a", "broker-a", 0)
        await mq.admin.offsets.commit("rival-group", {of_billing: 0})
        await mq.admin.quotas.set("topic", "rival-topic", publish_messages=1_000_000)
        assert {"topics", "groups"} <= naming(secured, READER, "rival")
        for user in (BILLING, TILL, NOBODY):
            assert naming(secured, user, "rival") == set(), user
        await mq.admin.quotas.remove("topic", "rival-topic")


def naming(secured: Secured, user: str, name: str) -> set[str]:
    """The operations whose answer to a user has this name; each is asked about other ones."""
    found = set()
    for one in OPERATIONS:
        if one.method == "GET" and one.media_type != "text/event-stream":
            path = one.path
            for key, value in PATH_VALUES.items():
                path = path.replace(f"{{{key}}}", value)
            if name in secured.http(user).get(path).text:
                found.add(one.name)
    return found


async def test_a_name_from_an_ordinary_key_is_refused(secured: Secured) -> None:
    for name in ("app", "ops"):
        async with secured.client(name, on_behalf_of="ops") as mq:
            with pytest.raises(
                NoPermission, match=f"user {name} may not send on behalf of user ops"
            ):
                await mq.admin.topics.create("forged")
    async with secured.client("console", on_behalf_of=TILL) as mq:
        with pytest.raises(NoPermission, match="user till has no right to"):
            await mq.admin.topics.create("bills")


def test_messages_are_leased_to_their_user(secured: Secured) -> None:
    billing, nobody = secured.http(BILLING), secured.http(NOBODY)
    path = "/v1/groups/billing/topics/orders-a/leases"
    wanted = {"max": 1, "wait_ms": 10_000, "begin": "first"}
    assert nobody.post(path, json=wanted).status == 403
    assert secured.http(READER).post(path, json=wanted).status == 403
    assert billing.post("/v1/topics/orders-a/messages", body=b"mine").status == 200
    received = billing.post(path, json=wanted)
    assert received.status == 200, received.text
    [message] = received.json["items"]
    assert nobody.get("/v1/leases").json["items"] == []
    assert [one["group"] for one in billing.get("/v1/leases").json["items"]] == ["billing"]
    assert nobody.post(f"/v1/leases/{message['lease']}/ack").status == 404
    assert billing.post(f"/v1/leases/{message['lease']}/ack").status == 200


async def test_a_right_that_was_taken_away_ends_leases(secured: Secured) -> None:
    billing = secured.http(BILLING)
    path = "/v1/groups/billing/topics/orders-a/leases"
    wanted = {"max": 1, "wait_ms": 100, "begin": "first"}
    assert billing.post(path, json=wanted).status == 200
    async with secured.client("ops") as mq:
        await mq.admin.users.deny(BILLING, "Topic:orders-a", "Sub")
        try:
            await until(lambda: billing.post(path, json=wanted).status == 403)
        finally:
            await mq.admin.users.revoke(BILLING, "Topic:orders-a")
            await mq.admin.users.allow(BILLING, "Topic:orders-a", "Pub,Sub")


def test_what_no_broker_decides_needs_a_right_there(secured: Secured) -> None:
    """Filter servers run filters, and name servers store values, for all who reach them."""
    trial = {"topic": "orders-a", "source": "def wanted(message): return True", "count": 1}
    for user, lacks in ((NOBODY, "Create on Filter:g/f"), (READER, "Create on Filter:g/f")):
        refused = secured.http(user).post("/v1/filters/g/f/trials", json=trial)
        assert refused.status == 403
        assert lacks in refused.json["detail"]
    promoted = "/v1/name-servers/values/KOUROU_PROMOTED/cluster%2Fbroker-a"
    refused = secured.http("ops").put(promoted, json={"value": "9 x"})
    assert refused.status == 403, refused.text
    assert "belong to brokers" in refused.json["detail"]


async def test_refusals_are_found_in_the_audit(secured: Secured) -> None:
    refused = secured.http(TILL).post("/v1/topics/bills/messages", body=b"x")
    assert refused.status == 403
    async with secured.client("ops") as mq:
        users = mq.admin.users
        [newest] = (await users.audit(user=TILL, request="SendRecords", max_count=1))["broker-a"]
        assert (newest.user, newest.console) == (TILL, "console-1")
        assert newest.need.endswith("on Topic:bills")
        assert await users.audit(user="somebody-else") == {"broker-a": []}
        every = (await users.audit(max_count=10_000))["broker-a"]
        # A line that counts the rest of a minute is written after the lines of that minute.
        assert all(one.at_ms < newer.at_ms + 60_000 for newer, one in pairwise(every))
        until = await users.audit(until_ms=newest.at_ms)
        assert newest not in until["broker-a"]


def test_administrators_search_and_export_the_audit(secured: Secured) -> None:
    """A change through the console, one of an operator, and a refused sign-in."""
    ops = secured.http("ops")
    assert ops.put("/v1/topics/audited", json={}).status == 200
    assert secured.http(TILL, "guessed").get("/v1/me").status in (401, 429)
    query = {"user": "ops", "decision": "allowed", "request": "UpdateAndCreateTopic"}
    page = ops.get("/v1/audit", query=query).json
    newest = page["items"][0]
    assert (newest["need"], newest["by"]) == ("Create on Topic:audited", "role administrator")
    assert (newest["console"], newest["decision"]) == ("console-1", "allowed")
    sign_in = ops.get("/v1/audit", query={"user": TILL, "request": "CheckCredential"}).json
    assert {one["decision"] for one in sign_in["items"]} == {"refused"}
    by_key = ops.get("/v1/audit", query={"request": "AuthCreateUser"}).json["items"]
    assert {(one["user"], one["console"]) for one in by_key} == {("ops", "")}
    *exported, end = ops.get("/v1/audit/export", query=query).body.splitlines()
    assert [json.loads(one) for one in exported] == page["items"]
    assert json.loads(end) == {"end": True, "count": len(exported), "error": None}
    for user in (READER, NOBODY):
        for path in ("/v1/audit", "/v1/audit/export"):
            refused = secured.http(user).get(path)
            assert refused.status == 403, path
            assert "no right to List on User" in refused.json["detail"]


# -- pages ----------------------------------------------------------------------------------------


def test_a_session_of_a_page(secured: Secured) -> None:
    page = HttpClient(secured.address)
    origin = {"Origin": f"http://{secured.address}", "Sec-Fetch-Site": "same-origin"}

    def enter(secret: str) -> HttpAnswer:
        return page.post("/session", json={"user": BILLING, "secret": secret}, headers=origin)

    assert page.get("/session").json["sign_in"] == "users"
    wrong = enter("guessed")
    assert (wrong.status, wrong.headers["www-authenticate"]) == (401, 'Session realm="kourou"')
    entered = enter(secret_of(BILLING))
    [cookie] = SimpleCookie(entered.headers["set-cookie"]).values()
    with_cookie = {**origin, "Cookie": f"{cookie.key}={cookie.value}"}
    changing = {**with_cookie, "Csrf-Token": entered.json["csrf"]}
    send = "/v1/topics/orders-a/messages"
    assert page.post(send, body=b"x", headers=changing).status == 200
    assert page.post(send, body=b"x", headers=with_cookie).status == 403
    foreign = {**changing, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert page.post(send, body=b"x", headers=foreign).status == 403
    assert page.post("/v1/topics/bills/messages", body=b"x", headers=changing).status == 403
    assert page.get("/v1/me", headers=with_cookie).json["name"] == BILLING
    assert page.delete("/session", headers=changing).status == 204
    assert page.get("/v1/me", headers=with_cookie).status == 401


def test_no_log_has_a_secret(secured: Secured) -> None:
    assert secured.http(TILL).get("/v1/me").status == 200
    for file in secured.folder.rglob("*"):
        if file.is_file() and file.suffix != ".key_secret":
            content = file.read_bytes()
            for name in (TILL, BILLING, READER):
                assert secret_of(name).encode() not in content, file
