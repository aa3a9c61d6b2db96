"""The console's life: it starts without a cluster, takes a free port or says why not, and ends."""

from __future__ import annotations

import http.client

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from kourou.clock import Clock
from kourou.errors import ConfigError
from kourou.model.units import DAY_MS
from kourou.service import entry, passwords
from kourou.telemetry.otlp_receiver import OtlpReceiver
from kourou.testing.cluster import Cluster
from kourou.transport.curve_keys import make_pair
from kourou_console.app import run
from kourou_console.config import SignInMode
from kourou_console.http.sign_in import OF_PLACE
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
        cluster.chaos.kill("broker-a")
        console.run(console.service._watch._ask())


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


def test_draining_waits_for_what_is_under_way(cluster):
    with ConsoleHere(cluster) as console:
        console.run(console.service.drain())
        with pytest.raises((ConnectionError, OSError)):
            console.get("/v1/me")
