"""The console's life: it starts without a cluster, takes a free port or says why not, and ends."""

from __future__ import annotations

import http.client
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from kourou.access.model import Action
from kourou.clock import Clock
from kourou.errors import ConfigError, Rejected, Unavailable
from kourou.model import names
from kourou.model.units import DAY_MS
from kourou.operations import Right
from kourou.service import entry, passwords
from kourou.telemetry.otlp_receiver import OtlpReceiver
from kourou.testing.cluster import Cluster
from kourou.transport.curve_keys import make_pair
from kourou.transport.tls import TlsMode
from kourou_console import app
from kourou_console.app import ClusterWatch, run
from kourou_console.config import ConsoleSettings, SignInMode
from kourou_console.gateway import Gateway
from kourou_console.http.sign_in import OF_PLACE
from kourou_console.lists import (
    answers,
    asked,
    why,
)
from kourou_console.operation import THE_CLUSTER, Operation
from kourou_console.operations import OPERATIONS
from kourou_console.topic_kinds import (
    Access,
    TopicClass,
    TopicKind,
    access_of,
    kind_of,
    permission_of,
)
from kourou_rigs.certificates import Authority
from kourou_rigs.console import ConsoleHere, HttpAnswer
from kourou_rigs.console_users import KnownSecrets


def test_it_says_what_is_wrong_with_the_port(console):
    port = int(console.address.rpartition(":")[2])
    with (
        pytest.raises(ConfigError, match=f"port {port}.*consolePort"),
        ConsoleHere(None, namesrv_addr="127.0.0.1:1", port=port),
    ):
        pass


def test_users_cannot_sign_in_where_passwords_cannot_be_hashed(tmp_path, monkeypatch):
    """It does not start: attempts whose secret cannot be compared would tell nothing."""

    def unsupported(**_):
        raise UnsupportedAlgorithm("Argon2id")

    make_pair(tmp_path, "console", [])
    settings = {"namesrv_addr": "127.0.0.1:1", "curve_key_file": tmp_path / "console.key_secret"}
    monkeypatch.setattr(passwords, "Argon2id", unsupported)
    with (
        pytest.raises(ConfigError, match="Argon2id"),
        ConsoleHere(None, sign_in=SignInMode.USERS, **settings),
    ):
        pass
    with ConsoleHere(None, namesrv_addr="127.0.0.1:1", request_timeout_ms=100) as console:
        assert console.get("/healthz").status == 200


def test_it_starts_without_a_name_server_and_says_so():
    with ConsoleHere(None, namesrv_addr="127.0.0.1:1", request_timeout_ms=100) as console:
        state = console.get("/readyz")
        assert state.status == 503
        assert "name server" in state.text
        assert console.get("/healthz").status == 200
        sent = console.post("/v1/topics/orders/messages", body=b"x")
        assert sent.status == 503
        assert sent.json["retryable"]
        assert "127.0.0.1:1" in sent.json["detail"]
        asked = console.get("/v1/cluster")
        assert asked.status == 503
        assert console.get("/").status == 200


def test_it_is_ready_when_the_cluster_is(tmp_path):
    with Cluster(tmp_path) as cluster, ConsoleHere(cluster, admin_enabled=True) as console:
        assert console.get("/readyz").text == "ok\n"
        assert console.get("/v1/me").json["cluster"] == "DefaultCluster"
        link = http.client.HTTPConnection(console.admin_address)
        link.request("GET", "/metrics")
        page = link.getresponse().read().decode()
        link.close()
        assert 'kourou_gateway_requests_total{node_type="console"' in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "namesrvAddr"),
        (["-n", "127.0.0.1:1", "--set", "bindAddress=0.0.0.0"], "tokenFile"),
        (["-n", "127.0.0.1:1", "--set", "tokenFile=/nowhere"], "/nowhere"),
        (["-n", "127.0.0.1:1", "--set", "sparkEtlAddress=x"], "sparkEtlAddress"),
        (["-n", "127.0.0.1:1", "--set", "trustedProxies=10.0.0.1/8"], "trustedProxies"),
        (["-n", "127.0.0.1:1", "--set", "consolPort=1"], "consolePort"),
    ],
)
def test_wrong_settings_end_it_with_a_sentence(arguments, said, capfd, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setattr(entry, "configure_logs", lambda **_: None)  # a test run has its own
    assert run([*arguments, "--set", "adminEnable=false"]) == 2
    assert said in capfd.readouterr().err


def test_a_request_is_one_span_below_its_callers(tmp_path, monkeypatch):
    with OtlpReceiver() as receiver, Cluster(tmp_path) as cluster:
        cluster.create_topic("orders")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        with ConsoleHere(cluster) as console:
            for flags in ("01", "00"):
                sent = console.post(
                    "/v1/topics/orders/messages",
                    body=b"x",
                    headers={"traceparent": f"00-{trace}-{caller}-{flags}"},
                )
                assert sent.status == 200
            console.get("/v1/me", headers={"traceparent": "nonsense"})
        spans = receiver.spans
    route = "POST /v1/topics/{topic}/messages"
    server = [one for one in spans if one.name == route]
    assert len(server) == 1, "the second was not sampled"
    assert server[0].trace_id == trace
    assert server[0].parent_id == caller
    send = [one for one in spans if one.name == "send orders"]
    assert [one.parent_id for one in send] == [server[0].span_id]


class SteppedClock:
    """A clock whose wall time can be set; its monotonic time goes on as it does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.wall_step_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.wall_step_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS])
def test_a_step_of_the_wall_clock_ends_no_session_and_forgives_no_guesses(tmp_path, step_ms):
    """Who can set the time of the machine, or of its time server, gains nothing."""
    public, pair = make_pair(tmp_path, "console")
    console = ConsoleHere(
        None,
        namesrv_addr="127.0.0.1:1",
        request_timeout_ms=100,
        sign_in=SignInMode.USERS,
        curve_key_file=pair,
        curve_server_key=public,
    )
    console.service._clock = clock = SteppedClock(console.service._clock)

    def begin(secret: str, user: str = "till") -> HttpAnswer:
        return console.post("/session", json={"user": user, "secret": secret})

    with console:
        sign_ins = console.service._handler._access._sessions.sign_ins
        sign_ins._brokers = KnownSecrets({"till": "the-secret", "ops": "secret-of-ops"})
        begun = begin("the-secret")
        assert begun.status == 200, begun.text
        cookie = {"Cookie": begun.headers["set-cookie"].partition(";")[0]}
        for _ in range(OF_PLACE.free):
            assert begin("guessed", "ops").status == 401
        assert begin("secret-of-ops", "ops").status == 429
        clock.wall_step_ms = step_ms
        assert begin("secret-of-ops", "ops").status == 429
        assert console.get("/session", headers=cookie).json["user"] == "till"


# -- watch -----------------------------------------------------------------------------------------


NO_BROKER = SimpleNamespace(clusters={}, brokers={})
BROKER = SimpleNamespace(clusters={"DefaultCluster": ["broker-a"]}, brokers={"broker-a": 1})


class FakeGateway:
    """Plays the gateway: gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.cluster_name: str | None = None
        self.asked = 0
        self.admin = SimpleNamespace(cluster=self)

    async def info(self) -> Any:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def started(gateway: FakeGateway, wait_s: float) -> str:
    watching = ClusterWatch(cast("Gateway", gateway))
    await watching.start(wait_s)
    trouble = watching.trouble
    await watching.stop()
    return trouble


async def test_it_waits_for_a_broker_that_starts_together_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "STARTING_PERIOD_S", 0.0)
    gateway = FakeGateway(Unavailable("no name server"), NO_BROKER, NO_BROKER, BROKER)
    assert await started(gateway, 60.0) == ""
    assert (gateway.asked, gateway.cluster_name) == (4, "DefaultCluster")


async def test_it_does_not_wait_for_ever() -> None:
    gateway = FakeGateway(NO_BROKER)
    assert await started(gateway, 0.0) == "no broker is registered at the name servers"
    assert gateway.asked == 1


# -- settings that do not go together --------------------------------------------------------------


def test_users_need_the_key_by_which_brokers_know_the_console(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="signIn=users needs curveKeyFile") as refused:
        ConsoleSettings(sign_in=SignInMode.USERS)
    assert "--role console" in refused.value.hint
    key = tmp_path / "console.key_secret"
    open_to_all = ConsoleSettings(
        sign_in=SignInMode.USERS, curve_key_file=key, bind_address="0.0.0.0"
    )
    assert open_to_all.bind_address == "0.0.0.0"
    with pytest.raises(ConfigError, match="signIn=users"):
        ConsoleSettings(curve_key_file=key, bind_address="0.0.0.0")


def test_addresses_over_tls_have_an_authority_that_can_be_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "own")
    trust = authority.path
    settings = ConsoleSettings(spark_etl_address="https://etl:18281", tls_client_trust_path=trust)
    assert settings.client_tls.trust == trust
    with pytest.raises(ConfigError, match="gone cannot be read"):
        ConsoleSettings(spark_etl_address="https://etl:1", tls_client_trust_path=tmp_path / "gone")
    with pytest.raises(ConfigError, match="does not begin with https://"):
        ConsoleSettings(spark_etl_address="etl:18281", tls_client_trust_path=trust)
    with pytest.raises(ConfigError, match="sparkEtlAddress"):
        ConsoleSettings(spark_etl_address="https://etl")
    certificate, _ = authority.pair("console")
    with pytest.raises(ConfigError, match="belong together"):
        ConsoleSettings(spark_etl_address="https://etl:1", tls_client_cert_path=certificate)


def test_a_console_is_not_permissive(tmp_path: Path) -> None:
    files = {"tls_cert_path": tmp_path / "c.pem", "tls_key_path": tmp_path / "k.pem"}
    ConsoleSettings(tls_mode=TlsMode.ENFORCING, **files)
    with pytest.raises(ConfigError, match="an HTTP port serves TLS or clear text, never both"):
        ConsoleSettings(tls_mode=TlsMode.PERMISSIVE, **files)


# -- asking several at once: who does not answer is named, and the others stand --------------------


async def test_a_bug_is_no_missing_broker() -> None:
    async def ask(_name: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asked(["a"], ask)
    with pytest.raises(ZeroDivisionError):
        why(ZeroDivisionError())


async def test_nobody_is_an_error_and_somebody_is_an_answer() -> None:
    async def ask(name: str) -> str:
        if name == "down":
            raise Unavailable("it is down")
        if name == "no":
            raise Rejected("there is no such thing")
        return name

    found, missing = await answers(["down", "a", "no"], ask)
    assert found == {"a": "a"}
    assert [one.what for one in missing] == ["down", "no"]
    assert await answers([], ask) == ({}, [])
    with pytest.raises(Unavailable, match="down: it is down"):
        await answers(["down", "no"], ask)
    with pytest.raises(Rejected, match="no such thing"):
        await answers(["no", "no"], ask)


# -- what an operation needs for a user, before brokers decide -------------------------------------


def test_without_a_declaration_reading_needs_get_and_a_change_update() -> None:
    by_name = {one.name: one for one in OPERATIONS}
    assert by_name["overview"].needed == ((Action.GET, THE_CLUSTER),)
    assert by_name["put_topic"].needed == ((Action.UPDATE, THE_CLUSTER),)
    assert by_name["put_name_server_value"].needed == ((Action.UPDATE, THE_CLUSTER),)
    assert by_name["send_message"].needed == ()
    assert by_name["spark_rows"].needed == ((Action.SUB, "Topic:*"),)


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_what_the_console_has_read_itself_needs_a_right(one: Operation) -> None:
    source = inspect.getsource(one.handle)
    if "Sampler" in source or "name_servers" in source or "spark_etl_address" in source:
        assert one.needed or (one.right is Right.READ and one.name == "who_am_i")


# -- the kinds by which topics are filtered, as RocketMQ's dashboard has them ----------------------


@pytest.mark.feature("F057")
@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", TopicClass(TopicKind.NORMAL)),
        ("%RETRY%till", TopicClass(TopicKind.RETRY, group="till")),
        ("%DLQ%till", TopicClass(TopicKind.DLQ, group="till")),
        (names.SCHEDULE_TOPIC, TopicClass(TopicKind.SYSTEM, "delay")),
        (names.HALF_TOPIC, TopicClass(TopicKind.SYSTEM, "transaction")),
        (names.TRACE_TOPIC, TopicClass(TopicKind.SYSTEM, "trace")),
        (names.CONTROL_TOPIC, TopicClass(TopicKind.SYSTEM, "control")),
        (names.AUTO_CREATE_TOPIC, TopicClass(TopicKind.SYSTEM, "template")),
        ("broker-a", TopicClass(TopicKind.SYSTEM, "broker")),
        ("C", TopicClass(TopicKind.SYSTEM, "cluster")),
        ("C_REPLY_TOPIC", TopicClass(TopicKind.SYSTEM, "reply")),
        ("rmq_sys_x", TopicClass(TopicKind.SYSTEM)),
        ("D_REPLY_TOPIC", TopicClass(TopicKind.NORMAL)),
    ],
)
def test_kinds(topic: str, expected: TopicClass) -> None:
    assert kind_of(topic, ["broker-a"], ["C"]) == expected


@pytest.mark.parametrize(
    ("perm", "access"),
    [
        (6, Access.READ_WRITE),
        (7, Access.READ_WRITE),
        (4, Access.READ),
        (2, Access.WRITE),
        (0, Access.NONE),
    ],
)
def test_permissions_are_words(perm: int, access: Access) -> None:
    assert access_of(perm) is access
    assert access_of(permission_of(access)) is access
