"""Requests of clients are handled only if the broker allows them, and its answers count briefly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from kourou.access.signature import SignedFields
from kourou.errors import Code
from kourou.model.limits import FILTER_SOURCE_BYTES_MAX
from kourou.protocol.bodies.access_bodies import ReportedRefusal, decode_reported
from kourou.protocol.messages.access import ReportRefusals
from kourou.protocol.messages.filter_server import (
    CheckAccess,
    CheckAccessResponse,
    GetFilters,
    GetFilterStatistics,
    PutFilter,
    RegisterFilterServer,
    RegisterMessageFilterClass,
    TryFilter,
)
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.messages.quotas import FlowControlled
from kourou.protocol.record.layout import masked_crc
from kourou.protocol.request import Answerer, Request
from kourou.protocol.table import REQUESTS
from kourou.runtime import Disconnected, LogWarning, Peer, Received, Reply, ReplyTo
from kourou_filter_server import client_access
from kourou_filter_server.client_access import KEEP_MS, REPORT_MS, REPORT_RETRY_MS
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.interface import (
    AskBroker,
    BrokerFound,
    EvaluateBatch,
    FiltersChanged,
    Leaving,
)
from kourou_filter_server.pulls import LEAVING
from kourou_rigs.access import sample_request
from kourou_rigs.filter_bench import (
    GROUP,
    NAME,
    TOPIC,
    Bench,
    a_pull,
    judged_bytes,
    record,
)

SOURCE = b"def match(message, context):\n    return True\n"
UPLOAD = RegisterMessageFilterClass(
    consumer_group=GROUP, topic=TOPIC, class_name=NAME, class_crc=masked_crc(SOURCE)
)
TRIAL = TryFilter(consumer_group=GROUP, name=NAME, topic=TOPIC, count=1)
COMMIT = int(PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)
KEYED = Peer(7, "zmq", ("192.0.2.7", 40_000), key="k" * 40)
NO = CheckAccessResponse(refusal=Code.NO_PERMISSION, text="user eve has no right to Sub")
ALLOWED, UNDECIDED = CheckAccessResponse(), CheckAccessResponse(undecided=True)


@dataclass(slots=True)
class SignedPeerReplyTo(ReplyTo):
    """The reply address of a signed request."""

    signed: SignedFields | None = field(default=None, repr=False)
    version: int = 413


@pytest.fixture
def asking(bench: Bench) -> Bench:
    """A filter server with a client that has a key; the test answers the questions about it."""
    bench.access = None
    bench.peer = KEYED
    return bench


@pytest.fixture
def deciding(asking: Bench) -> Bench:
    """The same, at a broker that is known to decide: it has refused another client."""
    asking.turn(asking.received(a_pull(topic="other")))
    asking.answer(question(asking), NO)
    return asking


def question(bench: Bench) -> AskBroker:
    """The only question of the last iteration."""
    (found,) = bench.questions()
    return found


def about(asked: AskBroker) -> CheckAccess:
    assert isinstance(asked.request, CheckAccess)
    return asked.request


def upstream(bench: Bench, kind: type[Request]) -> list[AskBroker]:
    """What goes to the broker with the rights of the filter server."""
    return [one for one in bench.all(AskBroker) if isinstance(one.request, kind)]


def signed(bench: Bench, request: Request) -> Received:
    """The request as RocketMQ's clients sign it."""
    received = bench.received(request)
    fields = {"AccessKey": "till", "Signature": "s"}
    to = SignedPeerReplyTo(Peer(8, "tcp", ("127.0.0.8", 1)), received.to.correlation)
    return replace(received, to=replace(to, signed=SignedFields.of(fields)))


# -- what the broker is asked ----------------------------------------------------------------------


def test_the_broker_gets_the_request_and_who_sends_it(asking: Bench) -> None:
    pull = a_pull(3, sys_flag=COMMIT, commit_offset=2)
    asking.turn(replace(asking.received(pull), on_behalf_of="till"))
    asked = about(question(asking))
    assert (asked.protocol, asked.address, asked.key) == ("zmq", "192.0.2.7", "k" * 40)
    assert (asked.on_behalf_of, asked.signed, asked.subject) == ("till", None, "")
    assert asked.request_code == PullMessage.code
    assert msgspec.msgpack.decode(asked.header, type=PullMessage) == pull
    asking.answer(question(asking), ALLOWED)
    asking.peer = Peer(9, "tcp", ("127.0.0.9", 1), subject="CN=till")
    asking.turn(asking.received(UPLOAD, SOURCE), signed(asking, UPLOAD))
    ways = [about(one) for one in asking.questions()]
    assert [(one.protocol, one.subject) for one in ways] == [("tcp", "CN=till")]
    assert b"".join(question(asking).body) == SOURCE
    asking.answer(question(asking), ALLOWED)
    later = about(question(asking))
    assert (later.signed, later.version) == ({"AccessKey": "till", "Signature": "s"}, 413)


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (a_pull(), b""),
        (a_pull(sys_flag=COMMIT, commit_offset=9), b""),
        (UPLOAD, SOURCE),
        (TRIAL, SOURCE),
        (TRIAL, b""),
        (GetFilterStatistics(), b""),
    ],
    ids=["pull", "commit", "replace", "try", "try-stored", "statistics"],
)
@pytest.mark.parametrize("peer", [KEYED, Peer(1, "tcp", ("127.0.0.1", 1))], ids=["key", "machine"])
def test_a_refused_request_goes_no_further(
    asking: Bench, request_: Request, body: bytes, peer: Peer
) -> None:
    """Whether its client has a key or is on this machine, which counts only without users."""
    asking.peer = peer
    asking.turn(asking.received(request_, body))
    assert [type(one) for one in asking.effects] == [AskBroker], "nothing is done before"
    asking.answer(question(asking), NO)
    (refused,) = asking.effects
    assert isinstance(refused, Reply)
    assert (refused.code, refused.remark) == (Code.NO_PERMISSION, NO.text)
    assert not refused.body
    asking.pass_time(60_000)
    assert not upstream(asking, PullMessage)
    assert not upstream(asking, PutFilter)


@pytest.mark.parametrize("answer", [ALLOWED, UNDECIDED])
def test_an_allowed_request_is_handled(asking: Bench, answer: CheckAccessResponse) -> None:
    asking.turn(asking.received(UPLOAD, SOURCE))
    asking.answer(question(asking), answer)
    assert upstream(asking, PutFilter)
    asking.turn(asking.received(TRIAL))
    for asked in asking.questions():
        asking.answer(asked, answer)
    assert upstream(asking, GetFilters)


def test_over_its_quota_a_client_gets_the_time_to_try_again(asking: Bench) -> None:
    asking.turn(asking.received(a_pull()))
    header = FlowControlled(retry_after_ms=70)
    asking.answer(question(asking), header, code=Code.FLOW_CONTROL, remark="over its quota")
    reply = asking.done(Reply)
    assert (reply.code, reply.remark, reply.header) == (
        Code.FLOW_CONTROL,
        "over its quota",
        header,
    )


# -- how long an answer counts ---------------------------------------------------------------------


def test_pulls_of_one_client_are_allowed_by_one_answer_for_a_second(deciding: Bench) -> None:
    deciding.turn(deciding.received(a_pull(1)), deciding.received(a_pull(2, queue_id=1)))
    deciding.answer(question(deciding), ALLOWED)
    assert len(upstream(deciding, PullMessage)) == 2
    deciding.now_ms += KEEP_MS - 1
    deciding.pull(3)
    assert not deciding.questions()
    deciding.now_ms += 1
    deciding.turn(deciding.received(a_pull(4)))
    assert not upstream(deciding, PullMessage)
    deciding.answer(question(deciding), NO)
    assert deciding.done(Reply).code == Code.NO_PERMISSION
    deciding.turn(deciding.received(a_pull(4)))
    assert deciding.questions(), "a refusal does not count for the next request"


def test_the_second_begins_with_the_question(deciding: Bench) -> None:
    deciding.turn(deciding.received(a_pull()))
    asked = question(deciding)
    deciding.now_ms += KEEP_MS
    deciding.answer(asked, ALLOWED)
    deciding.turn(deciding.received(a_pull()))
    assert deciding.questions()


def test_the_next_question_says_what_pulls_returned(deciding: Bench) -> None:
    """Once, with what passed its filter: the broker charges it to the client's quotas."""

    def asked() -> tuple[int, int]:
        found = about(question(deciding))
        return found.fetched_bytes, found.fetched_messages

    deciding.turn(deciding.received(a_pull()))
    assert asked() == (0, 0)
    deciding.answer(question(deciding), ALLOWED)
    first = deciding.asked(PullMessage)
    deciding.tell_filters(deciding.asked(GetFilters))
    deciding.worker()
    deciding.found(first, *map(record, range(4)))
    deciding.results(deciding.done(EvaluateBatch), "0110")
    assert judged_bytes(deciding.done(Reply)) == record(1) + record(2)
    deciding.found(deciding.pull(4), record(4))
    deciding.results(deciding.done(EvaluateBatch), "1")
    deciding.now_ms += KEEP_MS
    deciding.turn(deciding.received(a_pull(5, topic="other")))
    assert asked() == (0, 0), "of another topic"
    deciding.answer(question(deciding), NO)
    deciding.turn(deciding.received(a_pull(5)))
    assert asked() == (3 * len(record(0)), 3)
    deciding.answer(question(deciding), NO)
    deciding.turn(deciding.received(a_pull(5)))
    assert asked() == (3 * len(record(0)), 3), "a request that is refused is not charged"
    deciding.answer(question(deciding), ALLOWED)
    deciding.now_ms += KEEP_MS
    deciding.turn(deciding.received(a_pull(5)))
    assert asked() == (0, 0), "once"


@pytest.mark.fault
def test_who_connects_again_for_each_pull_pays_all_the_same(deciding: Bench) -> None:
    """Also who signs, and in between sends a wrong signature, which the broker does not charge."""
    deciding.turn(deciding.received(UPLOAD, SOURCE))
    deciding.answer(question(deciding), ALLOWED)
    rounds = [(0, (0, 0)), (1, (10, 1)), (0, (10, 1)), (0, (10, 1))]
    for number, (code, amounts) in enumerate(rounds):
        pull = signed(deciding, a_pull(number))
        pull.to.peer = replace(pull.to.peer, id=100 + number, address=("127.0.0.8", number))
        deciding.turn(pull)
        asked = question(deciding)
        found = about(asked)
        assert (found.fetched_bytes, found.fetched_messages) == amounts, number
        deciding.answer(asked, NO if code else ALLOWED)
        if not code:
            pull.to.drop_signed()
            deciding.core.access.fetched(pull, 10, 1)
        deciding.turn(Disconnected(pull.to.peer))


def test_nobody_pays_for_what_was_returned_while_nothing_was_decided(asking: Bench) -> None:
    access = asking.core.access
    pull = asking.received(a_pull())
    asking.turn(pull)
    asking.answer(question(asking), UNDECIDED)
    access.fetched(pull, 1 << 40, 1)
    asking.now_ms += KEEP_MS
    asking.turn(asking.received(a_pull()))
    assert about(question(asking)).fetched_bytes == 0


def test_what_is_counted_of_clients_is_bounded(
    deciding: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_access, "FETCHES_KEPT", 2)
    access = deciding.core.access
    pulls = [deciding.received(a_pull(topic=f"t{number}")) for number in range(3)]
    for _ in range(2):
        for pull in pulls:
            access.fetched(pull, 10, 1)
    access.fetched(deciding.received(TRIAL), 10, 1)
    assert list(access._fetched.values()) == [(10, 1), (10, 1)], "the oldest are forgotten"


@pytest.mark.parametrize(
    ("peer", "on_behalf_of", "fields"),
    [
        (KEYED, "", {"topic": "other"}),
        (KEYED, "", {"consumer_group": "other"}),
        (KEYED, "till", {}),
        (replace(KEYED, key="j" * 40), "", {}),
        (replace(KEYED, key="", subject="CN=till"), "", {}),
        (replace(KEYED, key=""), "", {}),
        (replace(KEYED, address=("192.0.2.8", 40_000)), "", {}),
        (replace(KEYED, protocol="tcp"), "", {}),
    ],
    ids=["topic", "group", "user", "key", "subject", "anonymous", "address", "protocol"],
)
def test_an_answer_counts_for_the_same_client_group_and_topic(
    deciding: Bench, peer: Peer, on_behalf_of: str, fields: dict[str, str]
) -> None:
    deciding.turn(deciding.received(a_pull()))
    deciding.answer(question(deciding), ALLOWED)
    deciding.peer = peer
    deciding.turn(replace(deciding.received(a_pull(**fields)), on_behalf_of=on_behalf_of))
    assert not upstream(deciding, PullMessage)
    deciding.answer(question(deciding), NO)
    assert deciding.done(Reply).code == Code.NO_PERMISSION


def test_signed_requests_and_changes_are_decided_each_time(deciding: Bench) -> None:
    for _ in range(2):
        deciding.turn(deciding.received(UPLOAD, SOURCE))
        deciding.answer(question(deciding), ALLOWED)
        assert upstream(deciding, PutFilter)
    first, second = signed(deciding, a_pull()), signed(deciding, a_pull())
    deciding.turn(first)
    deciding.answer(question(deciding), ALLOWED)
    deciding.turn(second)
    deciding.answer(question(deciding), NO)
    assert deciding.done(Reply).to is second.to


def test_without_decisions_all_clients_share_one_question_a_second(asking: Bench) -> None:
    peers = [replace(KEYED, id=number, key=f"{number:.<40}") for number in range(20, 40)]
    given = []
    for peer in peers:
        asking.peer = peer
        given.append(asking.received(a_pull(queue_id=peer.id)))
    asking.turn(*given, asking.received(UPLOAD, SOURCE))
    asking.answer(question(asking), UNDECIDED)
    assert len(upstream(asking, PullMessage)) == len(peers)
    assert len(upstream(asking, PutFilter)) == 1
    asking.now_ms += KEEP_MS - 1
    asking.pull(5)
    assert not asking.questions()
    asking.now_ms += 1
    asking.turn(asking.received(a_pull(6)), asking.received(a_pull(7)))
    assert len(asking.questions()) == 1


def test_who_waited_with_a_client_that_is_decided_is_decided_by_an_own_answer(
    asking: Bench,
) -> None:
    """The first user was created in the meantime."""
    first = asking.received(a_pull(1))
    asking.peer = replace(KEYED, id=8, key="j" * 40)
    second = asking.received(a_pull(2))
    asking.turn(first, second)
    asking.answer(question(asking), ALLOWED)
    (pulled,) = upstream(asking, PullMessage)
    assert pulled.to is first.to
    assert about(question(asking)).key == "j" * 40
    asking.answer(question(asking), NO)
    assert asking.done(Reply).to is second.to


def test_decisions_may_end(deciding: Bench) -> None:
    deciding.turn(deciding.received(a_pull(1)))
    deciding.answer(question(deciding), UNDECIDED)
    deciding.peer = replace(KEYED, key="j" * 40)
    deciding.pull(2)
    assert not deciding.questions()


def test_changed_rights_end_what_was_allowed_at_once(deciding: Bench) -> None:
    """Else a pull that waits would get messages that arrive long after the change."""
    deciding.turn(deciding.received(a_pull(3, 15_000)))
    deciding.answer(question(deciding), ALLOWED)
    (waiting,) = upstream(deciding, PullMessage)
    deciding.turn(FiltersChanged(deciding.filters_version, rights_changed=True))
    ended = deciding.done(Reply)
    assert ended.code == Code.PULL_RETRY_IMMEDIATELY
    assert isinstance(ended.header, PullResponse)
    assert ended.header.next_begin_offset == 3
    deciding.found(waiting, record(3))
    assert not deciding.effects, "its reply has been sent"
    deciding.turn(deciding.received(a_pull(3, 15_000)))
    assert not upstream(deciding, PullMessage)
    deciding.answer(question(deciding), NO)
    assert deciding.done(Reply).code == Code.NO_PERMISSION


def test_a_broker_that_gets_users_is_asked_at_once(asking: Bench) -> None:
    asking.turn(asking.received(a_pull(1)))
    asking.answer(question(asking), UNDECIDED)
    asking.pull(2)
    asking.turn(FiltersChanged(asking.filters_version, rights_changed=True))
    asking.turn(asking.received(a_pull(3)))
    assert question(asking)


def test_changed_filters_alone_end_nothing(deciding: Bench) -> None:
    deciding.turn(deciding.received(a_pull(3, 15_000)))
    deciding.answer(question(deciding), ALLOWED)
    deciding.turn(FiltersChanged(deciding.filters_version))
    assert not deciding.all(Reply)
    deciding.pull(4)
    assert not deciding.questions()


# -- the broker is away, and clients that go -------------------------------------------------------


def test_without_the_broker_nothing_is_handled(deciding: Bench) -> None:
    for _ in range(2):
        deciding.turn(deciding.received(a_pull()), deciding.received(UPLOAD, SOURCE))
        warnings = 0
        for asked in deciding.questions():
            deciding.no_answer(asked)
            reply = deciding.done(Reply)
            assert reply.code == Code.SERVICE_NOT_AVAILABLE
            assert "does not decide about its clients: it is offline" in reply.remark
            warnings += len(deciding.all(LogWarning))
    assert not warnings, "one warning is enough"


@pytest.mark.parametrize("code", [Code.REQUEST_CODE_NOT_SUPPORTED, Code.NO_PERMISSION, 0])
def test_a_broker_that_does_not_decide_counts_as_away(asking: Bench, code: int) -> None:
    """An older one, or one where this filter server is not a node."""
    asking.turn(asking.received(a_pull()))
    asking.answer(question(asking), code=code, remark="only a node" if code else "")
    assert asking.done(Reply).code == Code.SERVICE_NOT_AVAILABLE
    assert asking.done(LogWarning)


def test_answers_of_a_former_connection_do_not_count(deciding: Bench) -> None:
    deciding.turn(deciding.received(a_pull()))
    deciding.answer(question(deciding), ALLOWED)
    deciding.turn(BrokerFound())
    assert upstream(deciding, RegisterFilterServer)
    deciding.turn(deciding.received(a_pull()))
    assert deciding.questions()


def test_a_client_that_is_gone_gets_nothing(asking: Bench) -> None:
    asking.turn(asking.received(a_pull(1)))
    asked = question(asking)
    asking.peer = replace(KEYED, id=8)
    asking.turn(asking.received(a_pull(2)))
    asking.turn(Disconnected(KEYED))
    assert len(asking.core.access) == 1
    asking.answer(asked, ALLOWED)
    assert not upstream(asking, PullMessage), "the other one is decided by its own answer"
    asking.answer(question(asking), ALLOWED)
    (pulled,) = upstream(asking, PullMessage)
    assert pulled.to is not None
    assert pulled.to.peer.id == 8
    assert not asking.core.access


def test_a_filter_server_that_ends_replies_to_who_waits(asking: Bench) -> None:
    asking.turn(asking.received(a_pull()))
    asked = question(asking)
    asking.turn(Leaving())
    assert [(one.code, one.remark) for one in asking.all(Reply)] == [
        (Code.SERVICE_NOT_AVAILABLE, LEAVING)
    ]
    asking.answer(asked, ALLOWED)
    assert not asking.effects


def test_so_many_requests_wait_for_answers(benches: Callable[..., Bench]) -> None:
    bench = benches(ServerPolicy(workers_max=2, pulls_max=3))
    bench.access, bench.peer = None, KEYED
    bench.turn(*(bench.received(a_pull(number)) for number in range(4)))
    assert bench.done(Reply).code == Code.SYSTEM_BUSY
    assert len(bench.core.access) == 3


@pytest.mark.fault
def test_what_cannot_be_asked_is_refused(asking: Bench) -> None:
    for request, body in (
        (a_pull(subscription="x" * 70_000), b""),
        (a_pull(topic="\ud800"), b""),
        (a_pull(), b"x" * (FILTER_SOURCE_BYTES_MAX + 1)),
    ):
        asking.turn(asking.received(request, body))
        assert not asking.questions()
        assert asking.done(Reply).code == Code.SYSTEM_ERROR


# -- what is refused without the broker ------------------------------------------------------------


def reported(bench: Bench) -> tuple[AskBroker, list[ReportedRefusal]]:
    """The report of the last iteration."""
    asked = bench.asked(ReportRefusals)
    return asked, decode_reported(b"".join(map(bytes, asked.body)))


def test_filters_from_other_machines_are_reported_for_the_audit(asking: Bench) -> None:
    asking.peer = Peer(7, "tcp", ("192.0.2.7", 40_000))
    asking.turn(asking.received(UPLOAD, SOURCE), asking.received(UPLOAD, SOURCE))
    assert not upstream(asking, ReportRefusals)
    asking.peer = Peer(8, "zmq", ("192.0.2.8", 40_000))
    asking.turn(asking.received(TRIAL))
    asking.pass_time(1)
    asked, found = reported(asking)
    assert [(one.user, one.source, one.request, one.door, one.count) for one in found] == [
        ("anonymous", "192.0.2.7", "RegisterMessageFilterClass", "remoting", 2),
        ("anonymous", "192.0.2.8", "TryFilter", "zeromq", 1),
    ]
    asking.turn(asking.received(TRIAL))
    asking.pass_time(REPORT_MS)
    assert not upstream(asking, ReportRefusals), "one report after the other"
    asking.answer(asked)
    asking.pass_time(REPORT_MS - 1)
    assert not upstream(asking, ReportRefusals)
    asking.pass_time(1)
    assert [one.count for one in reported(asking)[1]] == [1]


def test_what_could_not_be_reported_is_reported_later(asking: Bench) -> None:
    asking.peer = Peer(7, "tcp", ("192.0.2.7", 40_000))
    asking.turn(asking.received(TRIAL))
    asking.pass_time(1)
    asking.no_answer(reported(asking)[0])
    asking.turn(asking.received(TRIAL))
    asking.pass_time(REPORT_RETRY_MS - 1)
    assert not upstream(asking, ReportRefusals)
    asking.pass_time(1)
    asked, found = reported(asking)
    assert [one.count for one in found] == [2]
    asking.answer(asked, code=Code.SERVICE_NOT_AVAILABLE, remark="starting")
    asking.pass_time(REPORT_RETRY_MS)
    asked, found = reported(asking)
    assert [one.count for one in found] == [2]
    asking.answer(asked, code=Code.NO_PERMISSION, remark="no node")
    asking.pass_time(REPORT_RETRY_MS)
    assert not upstream(asking, ReportRefusals), "the broker does not want it"


def test_the_last_refusals_are_reported_at_the_end(asking: Bench) -> None:
    asking.peer = Peer(7, "tcp", ("192.0.2.7", 40_000))
    asking.turn(asking.received(TRIAL))
    asking.turn(Leaving())
    assert [one.count for one in reported(asking)[1]] == [1]


def test_every_request_of_a_filter_server_is_asked_about(asking: Bench) -> None:
    specs = [spec for spec in REQUESTS.values() if Answerer.FILTER_SERVER in spec.answered_by]
    assert len(specs) >= 5
    for spec in specs:
        asking.turn(asking.received(sample_request(spec, {})))
        assert about(question(asking)).request_code == spec.code
        asking.answer(question(asking), NO)
        assert not upstream(asking, Request)
