"""A suite at work, as real processes: its traces, its metrics in a real Prometheus, its dashboards.

One trace names everybody whom a message passed; every panel of every dashboard has an answer.
"""

from __future__ import annotations

import json
import os
import re
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from kourou import ClientSettings, ConsumerSettings, Filter
from kourou.broker.telemetry.exporter_page import EXPORTER_METRICS
from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import Unavailable
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou.sync import Client
from kourou.telemetry.metric_table import METRICS
from kourou.telemetry.otlp_receiver import OtlpReceiver, SeenSpan
from kourou_filter_server import zygote_link as layers
from kourou_rigs.prometheus import PrometheusServer, find_program, promtool
from kourou_spark_etl.session import missing_java

DASHBOARDS = Path(__file__).parents[2] / "deploy/grafana/dashboards"
RULES = Path(__file__).parents[2] / "deploy/prometheus/alerts.yml"
TOPIC = "orders"
WINDOW = "30s"
"""What rates are made of here; Grafana takes four times what lies between two samples."""

SLOW = ("spark", "replication")
"""Dashboards with panels about Spark and Raft groups, which only slow tests start."""

IN_SYNC = "kourou_replication_in_sync"
"""Only a broker that waits for copies shows it; the suite's does not, as most do not."""

NO_USERS = "KourouAccessOpen"
"""The alert that is met on a good day, too, as these clusters have no users."""
OF_THE_MACHINE = ("KourouDiskFilling", "KourouFlushSlow")
"""Rules that tell of the machine on which the tests run."""


@Filter.define("everything")
def everything(message: Any, context: Any) -> bool:
    """All of them: what is looked at is that it was asked."""
    return True


@dataclass
class Suite:
    """Everything that runs, and where its spans go."""

    cluster: LocalCluster
    collector: OtlpReceiver
    console: Child

    @property
    def pages(self) -> Mapping[str, Sequence[str]]:
        """The services' pages, `host:port`, by service."""
        children = {
            "namesrv": [self.cluster.namesrv],
            "broker": self.cluster.brokers,
            "ha-replica": self.cluster.replicas,
            "filter-server": self.cluster.filter_servers,
            "console": [self.console],
        }
        return {
            service: [str(child.ready["admin"]).removeprefix("http://") for child in found]
            for service, found in children.items()
        }


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A name server, a broker with a copy and a filter server, the console; all of them trace."""
    if lacking := layers.missing():
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    settings = ClusterSettings(replicas=1, filter_servers=1, broker={"flushDiskType": "SYNC_FLUSH"})
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            patch.delenv(name)
        collector = stack.enter_context(OtlpReceiver())
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        cluster = stack.enter_context(LocalCluster(tmp_path_factory.mktemp("suite"), settings))
        console = cluster.start_console({})
        with Client(cluster.address, settings=ClientSettings(tracing=False)) as client:
            client.admin.topics.create(TOPIC, queues=2)
            until_copied(client)
        yield Suite(cluster, collector, console)


def until_copied(client: Client) -> None:
    """Wait until the replica has the whole log: what is sent now is shipped at once."""
    while True:
        view = [one.view for one in client.admin.replicas.of("broker-a")]
        if len(view) == 2 and None not in view and len({one.end for one in view if one}) == 1:
            return
        # The leader has its answer about every replica after each of these.
        client.admin.cluster.info()


def member(suite: Suite, group: str) -> Client:
    return Client(
        suite.cluster.address,
        # Not from the environment: clients of a process that name no endpoint share an exporter.
        settings=ClientSettings(trace_otlp_endpoint=suite.collector.endpoint),
        consumer=ConsumerSettings(
            consumer_group=group,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ),
    )


WHO = {
    "kourou-client",
    "kourou-broker",
    "kourou-ha-replica",
    "kourou-filter-server",
    "kourou-console",
}


def test_one_trace_names_everybody_whom_a_message_passed(suite: Suite) -> None:
    """Sent over HTTP; stored, copied, judged, consumed."""
    came: list[ReceivedMessage] = []
    here = threading.Event()

    def take(message: ReceivedMessage) -> None:
        came.append(message)
        here.set()

    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    request = urllib.request.Request(
        f"{suite.console.ready['http']}/v1/topics/{TOPIC}/messages",
        data=b"over HTTP",
        headers={
            "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01",
            "Content-Type": "application/octet-stream",
        },
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status in (200, 201)
    with member(suite, "sifted") as client, client.listen(TOPIC, take, everything):
        assert here.wait(60)

    def of_trace(spans: Sequence[SeenSpan]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for span in spans:
            if span.trace_id == trace_id:
                found.setdefault(span.service, set()).add(span.name)
        return found

    stored = {f"store {TOPIC}", "append", "ship", "copy"}

    def whole(spans: Sequence[SeenSpan]) -> bool:
        """A broker's spans come in several exports."""
        found = of_trace(spans)
        return found.keys() >= WHO and found["kourou-broker"] >= stored

    found = of_trace(suite.collector.wait_for(whole))
    assert f"send {TOPIC}" in found["kourou-console"] | found["kourou-client"]
    assert found["kourou-broker"] >= stored
    assert found["kourou-ha-replica"] == {"replicate"}
    assert found["kourou-filter-server"] == {f"judge {TOPIC}"}
    assert f"process {TOPIC}" in found["kourou-client"]
    assert came[0].properties["traceparent"].startswith(f"00-{trace_id}-")


# -- dashboards -----------------------------------------------------------------------------------


def questions(name: str) -> Iterator[tuple[str, str]]:
    """The panels of a dashboard: (title, expression), as Grafana would ask."""
    model = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    for panel in model["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", WINDOW)


NAMES = sorted(path.stem for path in DASHBOARDS.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_asks_for_metrics_that_there_are(name: str) -> None:
    asked = list(questions(name))
    assert asked
    for title, expression in asked:
        unknown = metrics_of(expression) - METRICS.keys() - {"up", "ALERTS"}
        assert not unknown, title


def test_dashboards_have_uids_of_their_own_and_panels_that_do_not_overlap() -> None:
    uids = set()
    for name in NAMES:
        model = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
        uids.add(model["uid"])
        taken: set[tuple[int, int]] = set()
        for panel in model["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, (name, panel["title"])
            assert place["x"] + place["w"] <= 24
            taken |= cells
    assert uids == {f"kourou-{name}" for name in NAMES}


def metrics_of(expression: str) -> set[str]:
    """The metrics that an expression asks for; a histogram's parts count as the histogram."""
    found: set[str] = set()

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            found.add(re.sub(r"_(bucket|count|sum)$", "", node.name))
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


@pytest.fixture(scope="module")
def prometheus(
    suite: Suite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    """A real one that scrapes the suite, while there is traffic of all kinds."""
    try:
        find_program("prometheus")
    except Unavailable as missing:
        pytest.skip(f"needs Prometheus: {missing.message}")
    targets = {**suite.pages, "exporter": suite.pages["broker"]}
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        Traffic(suite),
        PrometheusServer(folder, targets, names={"exporter": "exporter"}) as server,
    ):
        yield server


class Traffic:
    """Messages of every type, sent every tenth of a second until the block is left."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self._failure: BaseException | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._play()
        except Exception as error:  # noqa: BLE001 - it ends the test, in its own thread
            self._failure = error

    def _play(self) -> None:
        def fail_some(message: ReceivedMessage) -> None:
            if message.body == b"bad" and message.attempt == 1:
                raise ValueError("on purpose")

        suite = self._suite
        with (
            member(suite, "plain") as one,
            member(suite, "sifted") as other,
            one.listen(TOPIC, fail_some),
            other.listen(TOPIC, lambda message: None, everything),
        ):
            one.transaction_check(TOPIC)(lambda half: True)
            one.send_many(TOPIC, [b"bad"] * 2)
            while not self._over.wait(0.1):
                one.send_many(TOPIC, [b"good"] * 5)
                one.send(TOPIC, b"later", delay_level=1)
                with one.transaction(TOPIC, b"committed"):
                    pass
                self._over_http()

    def _over_http(self) -> None:
        self._post(f"topics/{TOPIC}/messages", b"over HTTP", "application/octet-stream")
        self._post(f"groups/web/topics/{TOPIC}/leases", b'{"max": 1}', "application/json")

    def _post(self, path: str, body: bytes, kind: str) -> None:
        request = urllib.request.Request(
            f"{self._suite.console.ready['http']}/v1/{path}",
            data=body,
            headers={"Content-Type": kind},
        )
        with urllib.request.urlopen(request) as answer:
            answer.read()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SLOW])
def test_every_panel_has_an_answer(prometheus: PrometheusServer, name: str) -> None:
    for title, expression in questions(name):
        if IN_SYNC in expression:
            continue
        try:
            prometheus.wait_for(expression)
        except AssertionError as silent:
            raise AssertionError(f"{name}: {title}: {silent}") from None


def test_every_panel_about_copies_has_an_answer(prometheus: PrometheusServer) -> None:
    """Those about the links of Raft groups have theirs where there is such a group."""
    for title, expression in questions("replication"):
        if "kourou_raft_" not in expression and IN_SYNC not in expression:
            prometheus.wait_for(expression)
            assert title


def met(prometheus: PrometheusServer) -> list[str]:
    """The alerts whose rules are met at this moment, for however short a time."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [
        rule["alert"]
        for group in groups
        for rule in group["rules"]
        if rule["alert"] not in OF_THE_MACHINE and prometheus.query(rule["expr"])
    ]


def test_on_a_good_day_no_rule_is_met(prometheus: PrometheusServer) -> None:
    """With a copy that nobody waits for, as `docker compose up` has it."""
    prometheus.wait_for("up == 1", 6)
    prometheus.wait_for("(kourou_replication_followers == 1) and kourou_replication_leads == 1")
    assert met(prometheus) == [NO_USERS]


def test_panels_about_copies_that_count_have_answers(tmp_path: Path) -> None:
    """Where senders wait for them; and such a pair is as good a day as any."""
    try:
        find_program("prometheus")
    except Unavailable as missing:
        pytest.skip(f"needs Prometheus: {missing.message}")
    settings = ClusterSettings(replicas=1, broker={"brokerRole": "SYNC_MASTER"})
    with LocalCluster(tmp_path / "pair", settings) as cluster:
        targets = {
            "broker": [page_of(cluster.brokers[0])],
            "ha-replica": [page_of(cluster.replicas[0])],
        }
        with PrometheusServer(tmp_path / "prometheus", targets) as server:
            asked = [one for name in NAMES for _, one in questions(name) if IN_SYNC in one]
            assert len(asked) == 2
            for expression in asked:
                server.wait_for(f"({expression}) == 1")
            assert met(server) == [NO_USERS]


def test_every_name_of_the_exporter_is_there(prometheus: PrometheusServer) -> None:
    dead = {"rocketmq_group_dlqdiff", "rocketmq_topic_dlq_offset"}  # there are no dead letters
    for name in EXPORTER_METRICS.keys() - dead:
        prometheus.wait_for(f'{name}{{service="exporter"}}')


STYLE = (
    "label names should be written in 'snake_case'",
    "metric names should not contain abbreviated units",
    "use base unit",
    "non-counter metrics should not",
    "non-histogram and non-summary metrics should not",
)
"""What promtool says of names; those of RocketMQ are as they are."""


def test_promtool_can_read_every_page(suite: Suite) -> None:
    """What it says of style is no error of the page."""
    try:
        find_program("promtool")
    except Unavailable as missing:
        pytest.skip(f"needs Prometheus: {missing.message}")
    pages = [address for addresses in suite.pages.values() for address in addresses]
    for address, names in [(page, "") for page in pages] + [
        (page, "?names=exporter") for page in suite.pages["broker"]
    ]:
        with urllib.request.urlopen(f"http://{address}/metrics{names}") as answer:
            _, said = promtool("check", "metrics", text=answer.read().decode())
        errors = [line for line in said.splitlines() if not any(style in line for style in STYLE)]
        assert errors == [], address


# -- what only slow tests start -------------------------------------------------------------------

JOBS = f"""
[queries.lake]
job = "lake"
subscribe = "{TOPIC}"
trigger = "1 second"
starting_offsets = "earliest"

[queries.flights]
job = "flights"
enabled = false
subscribe = "flights"
"""


def page_of(child: Child | None) -> str:
    assert child is not None
    return str(child.ready["admin"]).removeprefix("http://")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_trace_reaches_spark_and_its_panels_have_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trace: producer, broker, follower, filter server, consumer, Spark."""
    if problem := missing_java():
        pytest.skip(f"needs Java: {problem}")
    if lacking := layers.missing():
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(JOBS, encoding="utf-8")
    settings = ClusterSettings(
        replicas=1, filter_servers=1, spark_etl={"jobFile": str(jobs), "sparkMaster": "local[1]"}
    )
    here = threading.Event()
    who = {*(WHO - {"kourou-console"}), "kourou-spark-etl"}
    with OtlpReceiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with LocalCluster(tmp_path / "suite", settings) as cluster:
            suite = Suite(cluster, collector, cluster.namesrv)

            def of_message(spans: Sequence[SeenSpan]) -> set[str]:
                """Services, and what the client did: producer and consumer have one name."""
                ids = [span.trace_id for span in spans if span.name == f"send {TOPIC}"]
                found = [span for span in spans if span.trace_id in ids]
                done = {span.name for span in found if span.service == "kourou-client"}
                return {span.service for span in found} | done

            clients = {f"send {TOPIC}", f"process {TOPIC}"}
            with member(suite, "sifted") as client:
                client.admin.topics.create(TOPIC, queues=1)
                until_copied(client)
                with client.listen(TOPIC, lambda message: here.set(), everything):
                    client.send(TOPIC, b"to all of them")
                    assert here.wait(60)
                # A client that closes gives its last spans two seconds, and Spark takes all CPUs.
                collector.wait_for(lambda spans: of_message(spans) >= clients, 60)
            collector.wait_for(lambda spans: of_message(spans) >= who | clients, 300)
            targets = {"spark-etl": [page_of(cluster.spark_etl)]}
            with PrometheusServer(tmp_path / "prometheus", targets) as server:
                for title, expression in questions("spark"):
                    server.wait_for(expression)
                    assert title
                assert met(server) == [], "a query that is turned off is no query that stopped"


@pytest.mark.slow
def test_panels_about_raft_groups_have_answers(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "group", ClusterSettings(raft=3)) as cluster:
        targets = {"ha-replica": [page_of(child) for child in cluster.members]}
        with PrometheusServer(tmp_path / "prometheus", targets) as server:
            for title, expression in questions("replication"):
                if IN_SYNC not in expression:
                    server.wait_for(expression)
                    assert title
            server.wait_for("kourou_raft_peer_connected == 1", 6)
            assert met(server) == []
