"""Options, switches and common options of the admin commands, compared with those of mqadmin."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import kourou.cli.commands  # it fills COMMANDS
import kourou.sync
from kourou.cli.admin import command as command_module
from kourou.cli.admin import messages as message_commands
from kourou.cli.admin.brokers import broker_name, key_values
from kourou.cli.admin.command import COMMANDS, command, moment_ms, names_of, options_of
from kourou.cli.admin.report import Report, local_time
from kourou.cli.admin.topics import delete_topic
from kourou.cli.main import main
from kourou.client.admin.messages import MessageNotFound, QueryResults
from kourou.errors import BadRequest, ConfigError, KourouError, TopicNotFound, Unavailable
from kourou.model.subscription import GroupConfig
from kourou.model.topic import BrokerData
from kourou.protocol.bodies.route_bodies import ClusterInfo
from kourou.testing.cluster import Cluster

ROOT = Path(__file__).parents[4]
HELP = ROOT / "tests/golden/rocketmq-4.9.8/mqadmin-help.txt"
PAGE = ROOT / "docs/mqadmin.md"

LATER = {
    "updateAclConfig",
    "deleteAclConfig",
    "clusterAclConfigVersion",
    "updateGlobalWhiteAddr",
    "getAclConfig",
}
"""They administer access control lists, which this version does not have."""


def mqadmin() -> dict[str, dict[str, str]]:
    """RocketMQ's commands: name -> short option -> long option."""
    found: dict[str, dict[str, str]] = {}
    for part in HELP.read_text(encoding="utf-8").split("== ")[1:]:
        verb, _, rest = part.partition("\n")
        options = re.findall(r"^ -(\w),--([\w ]+?) *(?:<arg>|  )", rest, re.MULTILINE)
        found[verb] = {short: name for short, name in options if short != "h"}
    return found


MQADMIN = mqadmin()


def test_all_of_mqadmins_verbs_are_here() -> None:
    assert len(MQADMIN) == 57
    assert set(MQADMIN) - set(COMMANDS) == LATER


@pytest.mark.parametrize("verb", sorted(set(MQADMIN) - LATER))
def test_a_command_has_mqadmins_short_options(verb: str) -> None:
    known = {name for _, option in options_of(COMMANDS[verb]).values() for name in names_of(option)}
    missing = [short for short in MQADMIN[verb] if f"-{short}" not in known]
    assert missing == []


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_command_answers_in_json_too(verb: str) -> None:
    options = options_of(COMMANDS[verb]).values()
    assert any("--json" in names_of(option) for _, option in options)
    names = [name for _, option in options for name in names_of(option)]
    assert len(names) == len(set(names)), "one option, one meaning"


def test_the_page_lists_every_command_and_what_is_missing() -> None:
    text, _ = PAGE.read_text(encoding="utf-8").split("## RocketMQ's own mqadmin")
    rows = re.findall(r"^\| `([\w -]+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        name for name in COMMANDS if not name.startswith(("user ", "quota "))
    )
    absent = PAGE.read_text(encoding="utf-8").split("## Not supported")[1]
    assert [verb for verb in LATER if f"`{verb}`" not in absent] == []


@pytest.mark.parametrize(
    ("words", "value"),
    [([], False), (["-r"], True), (["-r", "true"], True), (["-r", "false"], False)],
)
@pytest.mark.parametrize("following", [[], ["-c", "C"]])
def test_a_switch_stands_alone_or_before_true_and_false(
    words: list[str], value: bool, following: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = []
    groups = SimpleNamespace(
        list=lambda: [GroupConfig("g")],
        delete=lambda group, **how: deleted.append((group, how["remove_offsets"], how["cluster"])),
    )
    use(monkeypatch, SimpleNamespace(admin=SimpleNamespace(groups=groups)))
    assert main(["admin", "deleteSubGroup", *words, *following, "-g", "g"]) == 0
    assert deleted == [("g", value, "C" if following else None)]


def use(monkeypatch: pytest.MonkeyPatch, client: object) -> None:
    """Let commands use this client instead of one that is connected to a cluster."""

    @contextlib.contextmanager
    def opened(*_: object, **__: object) -> Iterator[object]:
        yield client

    monkeypatch.setattr(kourou.sync, "Client", opened)


def test_a_switch_takes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "deleteSubGroup", "-g", "g", "-r", "perhaps"]) == 2
    assert "perhaps" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-w", "-r"])
@pytest.mark.parametrize("count", ["0", "16385"])
def test_as_many_queues_as_a_topic_may_have(
    option: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage is found before any request: nothing listens at this port."""
    assert main(["admin", "updateTopic", "-n", "127.0.0.1:1", "-t", "T", option, count]) == 2
    assert "16384" in capsys.readouterr().err or count == "0"


# -- declaring a command --------------------------------------------------------------------------


def test_a_command_that_the_catalogue_lacks_is_refused() -> None:
    with pytest.raises(KeyError, match="frobnicate"):
        command("frobnicate")


def test_a_repeated_command_ends_after_its_rounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pause:
        """An event that is never set, without the wait."""

        waits: ClassVar[list[float]] = []

        def wait(self, seconds: float) -> None:
            self.waits.append(seconds)

    counts = iter((3, 2, 1))

    def lag(client: object) -> Report:
        return Report(remarks=[f"lag {next(counts)}"], failed=True)

    use(monkeypatch, None)
    monkeypatch.setattr(command_module.threading, "Event", Pause)
    code = command_module.run_command(lag, namesrv=None, as_json=False, interval=5, rounds=2)
    assert (code, Pause.waits) == (1, [5])
    assert capsys.readouterr().out == "lag 3\nlag 2\n"


# -- brokers ---------------------------------------------------------------------------------------


CLUSTER = ClusterInfo(
    brokers={"broker-a": BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:20911"})},
    clusters={"DefaultCluster": ("broker-a",)},
)


def client_with(**families: object) -> Any:
    return SimpleNamespace(admin=SimpleNamespace(**families))


@pytest.mark.parametrize("text", ["broker-a", "127.0.0.1:20911", "127.0.0.1:10911"])
def test_a_broker_is_named_by_its_name_or_either_address(text: str) -> None:
    client = client_with(cluster=SimpleNamespace(info=lambda: CLUSTER))
    assert broker_name(client, text) == "broker-a"


@pytest.mark.parametrize("text", ["broker-b", "127.0.0.1:10912", "127.0.0.1:70000", ":", ""])
def test_an_unknown_broker_is_refused_and_the_known_ones_are_named(text: str) -> None:
    client = client_with(cluster=SimpleNamespace(info=lambda: CLUSTER))
    with pytest.raises(BadRequest, match=r"known: broker-a"):
        broker_name(client, text)


def test_a_namespace_may_have_no_keys() -> None:
    name_servers = SimpleNamespace(list=lambda _namespace: {})
    report = key_values(client_with(name_servers=name_servers), "shops")
    assert report.remarks == ["namespace shops has no keys"]


# -- commands for topics: what they reply about topics that do not exist ---------------------------


class Topics:
    """A cluster's topics: some that a name server lists, some that only a broker has."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.admin = SimpleNamespace(topics=self)

    def list(self) -> list[str]:
        return ["orders"]

    def config(self, topic: str) -> dict[str, object]:
        if topic == "nothing":
            raise TopicNotFound("the topic does not exist")
        return {"broker-a": object()} if topic == "new" else {}

    def delete(self, topic: str, *, cluster: str | None) -> None:
        self.deleted.append(topic)


@pytest.mark.parametrize("topic", ["orders", "new"])
def test_a_topic_of_a_name_server_or_a_broker_is_deleted(topic: str) -> None:
    topics: Any = Topics()
    report = delete_topic(topics, topic)
    assert (report.remarks, topics.deleted) == ([f"deleted {topic}"], [topic])


@pytest.mark.parametrize("topic", ["nothing", "other"])
def test_an_unknown_topic_is_not_deleted(topic: str) -> None:
    topics: Any = Topics()
    with pytest.raises(TopicNotFound, match=f"topic '{topic}' not found; nothing was deleted"):
        delete_topic(topics, topic)
    assert topics.deleted == []


# -- commands for messages: unknown IDs, and brokers that do not reply -----------------------------


HINT = "for a message ID printed by `kourou send`, also give the topic: -t TOPIC"


@pytest.mark.parametrize("error", [BadRequest("no id"), MessageNotFound("no broker has it")])
def test_an_id_that_is_not_found_may_be_of_the_other_kind(error: KourouError) -> None:
    def by_offset_id(message_id: str) -> object:
        raise error

    client = client_with(messages=SimpleNamespace(by_offset_id=by_offset_id))
    with pytest.raises(type(error)) as raised:
        message_commands.message_by_id(client, "C0A80001")
    assert (raised.value.message, raised.value.hint) == (error.message, HINT)


def test_a_broker_that_does_not_reply_is_reported() -> None:
    some: QueryResults[Any] = QueryResults((), {"broker-b": Unavailable("away")})
    client = client_with(
        messages=SimpleNamespace(by_key=lambda *_, **__: some, trace=lambda *_, **__: some)
    )
    by_key = message_commands.messages_by_key(client, "orders", "k")
    for report in (by_key, message_commands.message_trace(client, "id")):
        assert (report.failed, report.missing) == (True, some.missing)


# -- `kourou admin why`: lines for people, one object for programs, and an exit code ---------------


@pytest.fixture(scope="module")
def cluster_of_diagnosis(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("why")) as cluster_of_diagnosis:
        yield cluster_of_diagnosis


@pytest.mark.feature("F265")
def test_lines_json_and_exit_code(cluster_of_diagnosis, capsys):
    topic = cluster_of_diagnosis.create_topic(queues=1)
    with cluster_of_diagnosis.client() as mq:
        sent = mq.send(topic, b"x", keys="A-1")
        assert main(["admin", "why", "A-1", "-n", cluster_of_diagnosis.address, "-t", topic]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith(f"{sent.queue!s}@0")
        assert lines[1].startswith("nobody_consumes: ")
        assert lines[2].startswith("  -> ")
        mq.admin.offsets.commit("till", {sent.queue: 1})
        why = ["admin", "why", sent.message_id, "-n", cluster_of_diagnosis.address]
        assert main([*why, "-g", "till", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["message"]["keys"] == ["A-1"]
        assert [one["code"] for one in found["groups"][0]["causes"]] == ["consumed"]


# -- reports ---------------------------------------------------------------------------------------


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    rows = [("a", 5, True, None), ("long", 12, False, "now")]
    assert Report(("name", "count", "ok", "when"), rows).lines() == [
        "name  count  ok   when",
        "a         5  yes  -",
        "long     12  no   now",
    ]


# -- times in every form that operators type, and how reports show them ----------------------------


NOON_MS = 1_372_939_200_000  # 2013-07-04 12:00 UTC


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("now", 5),
        (str(NOON_MS), NOON_MS),
        ("2013-07-04T12:00:00+00:00", NOON_MS),
        ("2013-07-04T08:00", NOON_MS),
        ("2013-07-04 08:00:00", NOON_MS),
        ("2013-07-04#08:00:00:250", NOON_MS + 250),
    ],
)
def test_a_time_without_a_zone_is_local(text: str, time_ms: int) -> None:
    assert moment_ms(text, now_ms=5) == time_ms


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize("text", ["", "yesterday", "2013-13-01", "2013-07-04#8", "-1", "१२"])
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a time"):
        moment_ms(text, now_ms=5)


@pytest.mark.usefixtures("new_york")
def test_timestamps_are_shown_in_local_time() -> None:
    assert local_time(NOON_MS + 7) == "2013-07-04 08:00:00.007-04:00"
    assert local_time(0) is None
