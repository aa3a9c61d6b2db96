"""`docker compose up`, for real: both sides send and receive, a stop drains, a second start keeps.

The Spark pipeline is in it: what is sent becomes rows, each once, whatever happens to it.

It takes minutes and a Docker Engine (docker_engine.py), so it runs only when asked for:
`./kourou test containers --compose`, or `pytest --compose tests/containers/test_up.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from tests.containers.docker_engine import RUNTIME_IMAGE, SPARK_IMAGE, DockerEngine
from tests.containers.suite import (
    ADMIN,
    ADMIN_SECRET,
    BROKERS,
    FILTER_SERVERS,
    LAKE_LOOK_S,
    OURS,
    PROFILE,
    REPLICAS,
    START_S,
    WATCHING,
    Pipeline,
    Up,
    address,
    bodies,
    consumed,
    kourou,
    sent_by_http,
    states,
    stored,
    tailed,
    until,
)

from kourou import ConsumeFromWhere, ConsumerSettings
from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.sync import Client
from kourou.transport.curve_keys import make_pair
from kourou.transport.remoting_client import RemotingConnection

MESSAGES = 200
CLEAR = {
    "namesrv": {"9876", "9877"},
    "broker": {"10911", "10909"},
    "broker-b": {"11011", "11009"},
    "ha-replica": {"10931", "10929"},
    "ha-replica-b": {"11031", "11029"},
    "filter-server": {"10915"},
    "filter-server-2": {"10916"},
    "filter-server-b": {"11015"},
}
"""Where each listens for RocketMQ's clients."""

ADMIT = "cat > /keys/public/app.key"
LETTERS = 7
KEEP = "def match(message, context):\n    return message.json['wanted']\n"

pytestmark = [pytest.mark.compose, pytest.mark.timeout(3_000)]

KERNEL = "from kourou.protocol import kernel; print(kernel.NAME)"
MAPPED = "grep --no-messages --files-with-matches _kernel.abi3.so /proc/[0-9]*/maps"
EVENTS = """select stream, "offset", md5(body) from events"""

JAVA_FILES = """
find / -xdev -not -path '/proc/*' \\( -iname 'java' -o -iname 'javac' -o -iname '*.jar' \\
    -o -iname 'libjvm*' -o -iname '*openjdk*' -o -iname 'jre*' -o -iname 'pyspark*' \\)
"""
STANDING = """
import json, os
facts = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
def limit(*places):
    # What the kernel's control group says, of version 2 or 1.
    for place in places:
        if os.path.exists("/sys/fs/cgroup/" + place):
            text = open("/sys/fs/cgroup/" + place).read().strip()
            return int(text) if text.isdigit() else text
def writable(path):
    try:
        open(path + "/probe", "w").close()
    except OSError as error:
        return error.strerror
    return "yes"
print(json.dumps({"uid": os.getuid(), "gid": os.getgid(), "capabilities": int(facts["CapBnd"], 16),
    "no_new_privileges": int(facts["NoNewPrivs"]), "root": writable("/"),
    "programs": writable("/opt/kourou/bin"), "tmp": writable("/tmp"),
    "processes": limit("pids.max", "pids/pids.max"),
    "memory": limit("memory.max", "memory/memory.limit_in_bytes")}))
"""


def test_the_image_has_no_java(engine: DockerEngine) -> None:
    def inside(entry: str, *rest: str) -> str:
        entry_point = f"--entrypoint={entry}"
        return engine.docker(
            *("run", "--rm", "--network=none", "--user=0", entry_point, RUNTIME_IMAGE, *rest)
        )

    assert inside("sh", "-c", JAVA_FILES) == ""
    packages = inside("dpkg-query", "--show", "--showformat=${Package}\n").split()
    assert [name for name in packages if "jre" in name or "jdk" in name or "java" in name] == []
    assert "python3" in inside("sh", "-c", "find / -xdev -name 'python3*'"), "the look sees files"
    assert inside("kourou", "version").startswith("kourou ")


@pytest.mark.parametrize("image", [RUNTIME_IMAGE, SPARK_IMAGE])
def test_the_image_has_the_compiled_record_kernel(engine: DockerEngine, image: str) -> None:
    def kernel(*settings: str) -> str:
        options = ("run", "--rm", "--network=none", "--entrypoint=python3", *settings)
        return engine.docker(*options, image, "-c", KERNEL).strip()

    assert kernel() == "compiled"
    assert kernel("--env=KOUROU_KERNEL=python") == "python", "the program sees the other one"


def test_brokers_and_replicas_run_the_compiled_record_kernel(started: Up) -> None:
    """Of the running processes: brokers log it, and all four have the extension in memory."""
    for service in BROKERS:
        log = started("logs", "--no-log-prefix", service)
        kernels = re.findall(r'"event": "record-kernel-selected".*"kernel": "(\w+)"', log)
        assert set(kernels) == {"compiled"}, service
    for service in (*BROKERS, *REPLICAS):
        assert started("exec", "-T", service, "sh", "-c", MAPPED).strip(), service


def test_a_service_can_do_no_more_than_it_must(started: Up) -> None:
    for service in OURS:
        found = json.loads(started("exec", "-T", service, "python3", "-c", STANDING))
        own = 10002 if service in FILTER_SERVERS else 10001
        assert found["uid"] == found["gid"] == own
        assert found["capabilities"] == 0
        assert found["no_new_privileges"] == 1
        assert found["root"] == found["programs"] == "Read-only file system"
        assert found["tmp"] == "yes"
        most = 2_048 if service == "spark-etl" else 512
        assert found["processes"] == most
        memory = {"spark-etl": 3 << 30, "console": 512 << 20}
        memory |= dict.fromkeys(FILTER_SERVERS, 2 << 30)
        if service in memory:
            assert found["memory"] == memory[service]


def test_the_log_says_what_is_open_to_the_network_and_what_is_not(started: Up) -> None:
    """RocketMQ's frames and the pages are; Kourou's own carrier is encrypted."""
    for service in OURS:
        log = started("logs", "--no-log-prefix", service)
        assert "open to the network" in log
        assert service == "spark-etl" or "access-open" not in log
        clear = set(re.findall(r"listening on [0-9.]+:([0-9]+) in clear text", log))
        # The pipeline and the console serve nothing but pages.
        assert clear == CLEAR.get(service, set()), service


def test_each_sees_its_own_key_and_strangers_get_nowhere(
    started: Up, ports: dict[str, str], tmp_path: Path
) -> None:
    for service in OURS:
        folder = started("exec", "-T", service, "sh", "-c", "cat /run/kourou/keys/*").split()
        assert folder.count("secret-key") == 1, service
        assert "secret-key" not in started(
            "exec", "-T", service, "sh", "-c", "cat /run/kourou/public/*"
        )
    asked = ("admin", "clusterList")
    assert len(kourou(ports, *asked)) == 5, "a head, two brokers, two copies"
    make_pair(tmp_path, "stranger")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KOUROU_CURVE_KEY_FILE")
        with pytest.raises(AssertionError, match="set curveKeyFile and curveServerKey"):
            kourou(ports, *asked)
        started("cp", "broker:/run/kourou/public/namesrv.key", str(tmp_path / "namesrv.key"))
        patch.setenv("KOUROU_CURVE_KEY_FILE", str(tmp_path / "stranger.key_secret"))
        patch.setenv("KOUROU_CURVE_SERVER_KEY", str(tmp_path / "namesrv.key"))
        with pytest.raises(AssertionError, match="the server refused this client"):
            kourou(ports, *asked)


def test_only_users_get_anything_and_each_what_it_may(
    started: Up, ports: dict[str, str], tmp_path: Path
) -> None:
    """A key that servers admit is no user's until one has it; RocketMQ's clients must sign."""
    _, secret = make_pair(tmp_path / "app", "app")
    key = (tmp_path / "app" / "app.key").read_text("utf-8")
    started("run", "--rm", "-T", "--entrypoint", "sh", "keys", "-c", ADMIT, given=key)
    started("cp", "broker:/run/kourou/public", str(tmp_path / "public"))
    create = ("user", "create", "app", "--curve-key", str(tmp_path / "app" / "app.key"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOUROU_CURVE_SERVER_KEY", str(tmp_path / "public"))
        patch.setenv("KOUROU_CURVE_KEY_FILE", str(secret))
        with pytest.raises(AssertionError, match="anonymous has no right"):
            kourou(ports, "send", "secured", "nothing")
        patch.undo()
        kourou(
            ports, *create, "--no-secret", "--role", "writer:secured", "--role", "operator:secured"
        )
        patch.setenv("KOUROU_CURVE_SERVER_KEY", str(tmp_path / "public"))
        patch.setenv("KOUROU_CURVE_KEY_FILE", str(secret))
        assert kourou(ports, "send", "secured", "one")
        with pytest.raises(AssertionError, match="app has no right to Pub"):
            kourou(ports, "send", "others", "nothing")
    fields = {"a": "app", "b": "secured", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    answers = [
        by_rocketmq(ports, {**fields, "h": "0"}, secret)
        for secret in ("", "wrong secret", os.environ[ADMIN_SECRET])
    ]
    assert [code for code, _ in answers] == [1, 1, 0]
    assert "the request has no credentials" in answers[0][1] or "no right" in answers[0][1]
    assert "Check signature failed" in answers[1][1]


def by_rocketmq(ports: dict[str, str], fields: dict[str, str], secret: str) -> tuple[int, str]:
    """Send as RocketMQ's clients do, signed by the administrator if there is a secret."""
    body = b"by RocketMQ's protocol"
    if secret:
        fields = {**fields, ACCESS_KEY: ADMIN}
        fields = {**fields, SIGNATURE: sign(fields, [body], secret)}

    async def exchange() -> tuple[int, str]:
        connection = RemotingConnection(f"127.0.0.1:{ports['KOUROU_BROKER_TCP_PORT']}")
        try:
            command = RemotingCommand(310, ext_fields=fields)
            reply = await connection.exchange(command, (body,), timeout_ms=20_000)
        finally:
            connection.close()
        return reply.code, reply.remark or ""

    return asyncio.run(exchange())


def test_it_lives_through_sends_a_kill_a_stop_and_a_second_start(
    started: Up, ports: dict[str, str], pipeline: Pipeline
) -> None:
    """One story, since each step stands on those before. Rows are counted after every one."""
    from_host = [f"from this machine {number}" for number in range(MESSAGES)]
    from_inside = [f"from a container {number}" for number in range(MESSAGES)]
    expected = sorted([*from_host, *from_inside])

    def both_see(messages: list[str]) -> None:
        assert tailed(ports, "orders", len(messages)) == messages
        read = ("tail", "orders", "--first", "--json", "--count", str(len(messages)))
        inside = started("exec", "-T", "namesrv", "kourou", *read, "--namesrv", "namesrv:9876")
        assert bodies(inside.splitlines()) == messages

    assert len(kourou(ports, "send", "orders", given="\n".join(from_host))) == MESSAGES
    started("exec", "-T", "broker", "kourou", "send", "orders", *from_inside)
    both_see(expected)
    assert consumed(ports, "orders", "counters", len(expected)) == expected
    dead_letters(ports, LETTERS)
    pipeline.wait_for_rows("orders", expected)
    until("dead letters in the read model", lambda: pipeline.letters("shoppers") >= LETTERS)
    history = pipeline.batches("lake")

    # Its container is killed while more come.
    for number in range(8):
        more = [f"more {number} {place}" for place in range(25)]
        kourou(ports, "send", "orders", *more)
        expected = sorted([*expected, *more])
        if number == 1:
            pipeline.kill()
    pipeline.wait_for_rows("orders", expected)
    assert pipeline.container["RestartCount"] >= 1
    until("its tables", lambda: pipeline.letters("shoppers"))
    assert pipeline.letters("shoppers") == LETTERS, "counted once, before the kill and after it"
    assert pipeline.batches("lake")[: len(history)] == history

    started("stop")
    everybody = ("keys", *OURS, "postgres", *WATCHING)
    assert states(started) == dict.fromkeys(everybody, ("exited", 0))
    for service, name in zip(BROKERS, ("broker-a", "broker-b"), strict=True):
        assert "SIGTERM: draining" in started("logs", "--no-log-prefix", service)
        assert f"{name} (0)" in started("logs", "namesrv"), "it left its name server"
    assert pipeline.bodies("orders") == expected, "a drained batch is whole"

    started("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)
    both_see(expected)
    assert recorded(started) >= 1, "PostgreSQL has the control events"
    late = [f"after the second start {number}" for number in range(MESSAGES)]
    kourou(ports, "send", "orders", given="\n".join(late))
    expected = sorted([*expected, *late])
    dead_letters(ports, LETTERS)
    pipeline.wait_for_rows("orders", expected)
    until("the later letters", lambda: pipeline.letters("shoppers") >= 2 * LETTERS)
    assert pipeline.letters("shoppers") == 2 * LETTERS
    until("its group", lambda: place_of(pipeline) == (0, len(expected)))
    whole = pipeline.batches("lake")
    assert whole[: len(history)] == history
    assert len({checkpoint for checkpoint, _, _ in whole}) == 1, "it went on from its checkpoint"


def dead_letters(ports: dict[str, str], count: int) -> None:
    """A consumer on this machine that can do nothing with so many messages more."""
    settings = ConsumerSettings(
        consumer_group="shoppers",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    with Client(address(ports)) as client:

        def there() -> int:
            return len(client.admin.dead_letters.of("shoppers", count_max=1_000))

        wanted = there() + count
        with client.subscribe("orders", settings=settings) as messages:
            for _, message in zip(range(count), messages, strict=False):
                message.dead_letter("no such shop")
        until("dead letters at the broker", lambda: there() == wanted)


def place_of(pipeline: Pipeline) -> tuple[int, int] | None:
    """The lag of the lake's group, and what it has consumed, by the newest sample."""
    rows = pipeline.table(
        "backlog", consumer_group="spark-lake", topic="orders", order="-at_ms", limit=1
    )
    return (rows[0]["lag"], rows[0]["consumed_offsets"]) if rows else None


@pytest.mark.feature("F238", "F239", "F243")
def test_a_filter_runs_in_its_container_for_both_sides(started: Up, ports: dict[str, str]) -> None:
    """In a sandbox, under our profile; consumers reach the filter servers from both sides."""
    for service in FILTER_SERVERS:
        view = started("exec", "-T", service, "kourou", "doctor")
        assert "ok       sandbox for filters: user namespaces" in view
    kourou(ports, "send", "wishes", *(json.dumps({"wanted": n % 5 == 0}) for n in range(50)))
    put = ("admin", "filter", "put", "-", "-g", "wishers", "-f", "wanted")
    kourou(ports, *put, given=KEEP)
    kourou(ports, *put, given=KEEP)  # once more changes nothing
    listed = ("admin", "filter", "list")
    here = [ports[f"KOUROU_{name.upper().replace('-', '_')}_PORT"] for name in FILTER_SERVERS]
    assert servers_in(kourou(ports, *listed)) == {f"127.0.0.1:{port}" for port in here}
    view = started("exec", "-T", "broker", "kourou", *listed, "-n", "namesrv:9876")
    assert servers_in(view.splitlines()) == {
        *("filter-server:20915", "filter-server-2:20916", "filter-server-b:21015")
    }
    tried = kourou(ports, *TRIED, "--json")
    inside = started("exec", "-T", "broker", "kourou", *TRIED, "--json", "-n", "namesrv:9876")
    for lines in (tried, inside.splitlines()):
        verdicts = [json.loads(line)["verdict"] for line in lines]
        assert sorted(verdicts) == ["filtered out"] * 40 + ["passes"] * 10


def servers_in(lines: list[str]) -> set[str]:
    """The filter servers of both brokers, as `kourou admin filter list` tells them."""
    view = [line for line in lines if line.startswith("filter servers of broker-")]
    assert len(view) == 2
    return {name for line in view for name in line.partition(": ")[2].split(", ")}


TRIED = ("admin", "filter", "try", "-g", "wishers", "-f", "wanted", "-t", "wishes", "-c", "50")


@pytest.mark.feature("F243")
def test_under_dockers_profile_it_refuses_and_says_why(engine: DockerEngine, root: Path) -> None:
    """The image as it is, with the options that Compose gives it; then without the profile."""

    def run(*command: str, profile: bool) -> str:
        chosen = [f"--security-opt=seccomp={root / PROFILE}"] if profile else []
        return engine.docker(
            *("run", "--rm", "--network=none", "--user=10002:10002", "--workdir=/", "--read-only"),
            *("--cap-drop=ALL", "--security-opt=no-new-privileges", *chosen),
            *(RUNTIME_IMAGE, *command),
        )

    assert "sandbox for filters: user namespaces" in run("doctor", profile=True)
    assert "its sandbox lacks user namespaces (" in run("doctor", profile=False)
    with pytest.raises(RuntimeError, match=r"ended with 2:(.|\n)*user namespaces"):
        run("filter-server", profile=False)


def test_down_and_up_lose_nothing_of_the_whole_suite(
    started: Up, ports: dict[str, str], pipeline: Pipeline
) -> None:
    """The messages of each topic, the rows of the lake, dead letters, events in PostgreSQL."""
    kourou(ports, "send", "counted", *(f"counted {number}" for number in range(MESSAGES)))
    sent_by_http(ports, "by HTTP", "counted")

    def all_in_lake() -> dict[str, int] | None:
        rows, messages = pipeline.rows(), stored(ports)
        whole = {name: count for name, count in messages.items() if not name.startswith("%")}
        return rows if rows == whole else None

    rows = until("a row for each message", all_in_lake, LAKE_LOOK_S)
    assert rows["counted"] == MESSAGES + 1
    messages, events = stored(ports), recorded_events(started)
    letters = pipeline.table("dead_letters")
    assert events

    started("down", "--timeout", "40")
    assert set(states(started).values()) == set(), "no container is left"
    started("up", "--detach", "--no-build", "--wait", "--wait-timeout", START_S)

    assert stored(ports) == messages
    assert pipeline.rows() == rows
    until("the same dead letters", lambda: pipeline.table("dead_letters") == letters)
    assert events <= recorded_events(started), "the brokers may have added some since"
    counted = tailed(ports, "counted", MESSAGES + 1)
    assert counted == sorted([*(f"counted {number}" for number in range(MESSAGES)), "by HTTP"])


def recorded_events(up: Up) -> set[str]:
    """The events of both brokers that PostgreSQL has: stream, offset and a hash of the body."""
    asked = ("psql", "--username", "kourou", "--tuples-only", "--no-align", "--command", EVENTS)
    return set(up("exec", "-T", "postgres", *asked).splitlines())


def recorded(up: Up) -> int:
    """How often PostgreSQL has it that the topic was made."""
    question = "select count(*) from events where type = 'TopicPut' and body like '%orders%'"
    asked = ("psql", "--username", "kourou", "--tuples-only", "--command", question)
    return int(up("exec", "-T", "postgres", *asked))
