"""One queue: pulls pause at the limits, and go on where a broker says."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kourou.client.consumer.queue_consumption import Window, WindowLimits
from kourou.client.settings.client_settings import CorruptPolicy
from kourou.errors import Code
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullMessage, PullResponse
from kourou_rigs.wire_faults import Answer, always

QUEUE = MessageQueue("T", "broker-a", 0)


async def test_an_offset_below_the_queue_is_corrected(broker, consuming, caplog, tools):
    await tools.fill(consuming, 40)
    broker.trim("T", 0, 4)
    for number in range(4):
        broker.commit("T", number, 0)
    inbox = tools.Inbox(36)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        assert listener.counts.corrected == 1
    assert broker.committed["g", "T", 0] == 10
    assert "outside the queue" in caplog.text


async def test_an_offset_beyond_the_queue_is_corrected_downwards(broker, consuming, tools):
    await tools.fill(consuming, 4)
    broker.commit("T", 0, 99)
    inbox = tools.Inbox(3)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        await tools.until(broker, lambda: listener.counts.corrected == 1)
    assert broker.committed["g", "T", 0] == 1


@pytest.mark.fault
async def test_a_refusal_is_news_once_and_again_when_it_is_another(
    one_queue, consuming, caplog, tools
):
    says = [*["no reading"] * 3, *["no such group"] * 2, None, "no such group"]

    def refuses(request):
        if request.topic != "T":
            return None
        remark = says.pop(0) if says else None
        return Answer(Code.NO_PERMISSION, remark=remark) if remark else None

    one_queue.faults[PullMessage] = always(refuses)
    await tools.fill(consuming, 1)
    inbox = tools.Inbox(2)
    caplog.set_level("DEBUG", "kourou.client.consume")
    settings = {"pull_pause_ms_when_exception": 1, "pull_batch_size": 1}
    async with consuming(**settings) as mq, mq.listen("T", inbox.handle):
        await tools.until(one_queue, lambda: not says)
        await mq.send("T", b"after all")
        await inbox.full.wait()
    lines = [one for one in caplog.records if ": pull refused with code" in one.getMessage()]
    assert [(one.levelname, one.args["remark"]) for one in lines] == [
        ("WARNING", "no reading"), ("DEBUG", "no reading"), ("DEBUG", "no reading"),
        ("WARNING", "no such group"), ("DEBUG", "no such group"), ("WARNING", "no such group"),
    ]  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("policy", list(CorruptPolicy))
async def test_unreadable_messages(one_queue, consuming, caplog, policy, tools):
    await tools.fill(consuming, 6)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def damaged(request):
        if request.queue_offset >= 3 or request.topic != "T":  # the group's retry topic
            return None
        loop.call_soon_threadsafe(asked.set)
        place = PullResponse(
            suggest_which_broker_id=0, next_begin_offset=3, min_offset=0, max_offset=6
        )
        return Answer(Code.MESSAGE_CORRUPT, place, remark="unreadable offsets: 0, 1, 2")

    one_queue.faults[PullMessage] = always(damaged)
    inbox = tools.Inbox(3)
    settings = {"on_corrupt": policy, "pull_pause_ms_when_exception": 5}
    async with consuming(**settings) as mq, mq.listen("T", inbox.handle) as listener:
        await asked.wait()
        if policy is CorruptPolicy.SKIP:
            await inbox.full.wait()
            assert listener.counts.unreadable == 1
    assert "unreadable offsets: 0, 1, 2" in caplog.text
    assert one_queue.committed["g", "T", 0] == (6 if policy is CorruptPolicy.SKIP else 0)


async def test_a_queue_tells_what_it_is(one_queue, consuming, tools):
    await tools.fill(consuming, 5)
    taken = []
    async with consuming() as mq, mq.subscribe("T", auto_ack=False) as messages:
        async for message in messages:
            taken.append(message)
            if len(taken) == 5:
                break

        async def info():
            return messages._started.running_info().queues[QUEUE]

        before = await tools.core(mq).io.run(info())
        assert (before.commit_offset, before.cached_count) == (0, 5)
        assert (before.cached_min_offset, before.cached_max_offset) == (0, 4)
        assert before.cached_size_bytes == sum(message.size for message in taken)
        assert before.last_pull_ms > 0 == before.last_consume_ms
        taken[0].ack()
        taken[3].ack()
        await tools.until(one_queue, lambda: messages.counts.consumed == 2)
        after = await tools.core(mq).io.run(info())
        assert (after.commit_offset, after.cached_count, after.dropped) == (1, 3, False)
        assert after.last_consume_ms > 0


async def test_a_queue_stands_since_its_smallest_message_is_the_smallest(
    one_queue, consuming, tools
):
    await tools.fill(consuming, 3)
    gates = [asyncio.Event() for _ in range(3)]
    started = asyncio.Semaphore(0)

    async def handler(message):
        started.release()
        await gates[message.offset].wait()

    async with consuming() as mq, mq.listen("T", handler) as listener:
        for _ in gates:
            await started.acquire()
        (queue,) = [one for of, one in listener._started._queues.items() if of.topic == "T"]

        def info():
            return queue.info()

        since_ms = queue.info().stalled_since_ms
        assert since_ms > 0
        queue.moved_ms = 5  # long ago
        gates[1].set()
        await tools.until(one_queue, lambda: info().cached_count == 2)
        assert info().stalled_since_ms == 5, "a later one finished: the smallest still stands"
        gates[0].set()
        await tools.until(one_queue, lambda: info().cached_count == 1)
        assert info().stalled_since_ms >= since_ms
        gates[2].set()
        await tools.until(one_queue, lambda: info().cached_count == 0)
        assert info().stalled_since_ms == 0


@pytest.mark.feature("F278")
async def test_a_message_tells_how_many_lie_behind_it(one_queue, consuming, tools):
    await tools.fill(consuming, 20)
    inbox = tools.Inbox(20)
    async with consuming() as mq, mq.listen("T", inbox.handle):
        await inbox.full.wait()
    assert sorted(message.backlog for message in inbox.messages) == list(range(20))


# -- the window ------------------------------------------------------------------------------------


def window_of(*offsets: int) -> Window:
    window = Window(offsets[0])
    window.put(offsets, [10] * len(offsets), offsets[-1] + 1)
    return window


def test_a_dropped_window_is_frozen_at_its_commit_offset():
    window = window_of(1, 2, 3)
    window.finish([1])
    assert window.drop() == 2
    window.finish([2, 3])
    assert window.dropped
    assert (window.commit_offset, window.count, window.size_bytes) == (2, 0, 0)


def test_a_window_takes_no_lower_offsets_and_a_dropped_one_none_at_all():
    window = window_of(5)
    with pytest.raises(AssertionError):
        window.put([4], [1], 7)
    window.drop()
    with pytest.raises(AssertionError):
        window.put([6], [1], 7)


@pytest.mark.feature("F199")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (WindowLimits(count_max=3), "4 messages"),
        (WindowLimits(size_bytes_max=39), "40 bytes"),
        (WindowLimits(span_max=2), "span 3"),
        (WindowLimits(count_max=4, size_bytes_max=40, span_max=3), ""),
    ],
)
def test_each_limit_pauses_pulling_when_exceeded(limits, reason):
    window = window_of(1, 2, 3, 4)
    over = window.over(limits)
    assert (window.exceeded(limits) is None) is not bool(over)
    assert reason in over
    assert bool(over) is bool(reason)


class WindowMachine(RuleBasedStateMachine):
    """Random pulls and finishes against a plain set."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(7)
        self.next = 7
        self.open: set[int] = set()
        self.committed = 7

    @rule(gaps=st.lists(st.integers(0, 3), max_size=6), tail=st.integers(0, 4))
    def pull(self, gaps, tail):
        offsets = []
        at = self.next
        for gap in gaps:
            offsets.append(at + gap)
            at += gap + 1
        self.next = at + tail
        self.window.put(offsets, [5] * len(offsets), self.next)
        self.open.update(offsets)

    @rule(over=st.integers(0, 4))
    def skip(self, over):
        """A pull brought nothing that passes, and says where to go on."""
        self.next += over
        self.window.skip_to(self.next)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data):
        done = data.draw(st.sets(st.sampled_from(sorted(self.open)), min_size=1))
        self.window.finish(done)
        self.open -= done

    @rule(offset=st.integers(0, 60))
    def finish_again_or_what_is_not_there(self, offset):
        self.window.finish([offset, offset])
        self.open.discard(offset)

    @invariant()
    def agrees(self):
        assert self.window.commit_offset == min(self.open, default=self.next)
        assert self.window.commit_offset >= self.committed
        assert self.window.count == len(self.open)
        assert self.window.size_bytes == 5 * len(self.open)
        assert self.window.bounds == (min(self.open, default=-1), max(self.open, default=-1))
        assert all(self.window.holds(offset) for offset in self.open)
        self.committed = self.window.commit_offset


TestWindowMachine = pytest.mark.feature("F197", "F228")(WindowMachine.TestCase)
TestWindowMachine.settings = settings(stateful_step_count=25)
