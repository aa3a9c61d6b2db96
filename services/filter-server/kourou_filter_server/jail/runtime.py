"""Runs an uploaded filter over batches of messages, inside the jail.

A filter is a module with `match(message, context) -> bool`, or with one class that has it as a
method; beside it, optional, `set_up(context)` and `match_batch(messages, context) -> list[bool]`,
which is then asked instead.

A verdict is one byte a message: 0 it does not pass, 1 it passes, 2 the filter could not say. An
error at one message is a 2 there and no more, so that whoever asked can hold at that message or
go over it. Only True and False are answers: a function that forgot its `return` is a broken filter
and not one that wants nothing.

State: soft. What a filter keeps in its own variables is gone with its worker, at any moment.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from kourou_filter_server.jail.scope import new_scope, prepare
from kourou_filter_server.jail.view import BadRecord, MessageView, next_record

__all__ = ["MEMORY", "NO_FAILURE", "RAISED", "Context", "Filter", "SetUpFailed", "prepare"]

NO_FAILURE, RAISED, MEMORY = range(3)
"""What `Filter.judge` says besides its verdicts."""

REASON_BYTES_MAX = 500
"""Of a reason in UTF-8: it must fit into the reply's field of 512 bytes."""

_FILE = "<filter>"
_DOES_NOT_PASS, _PASSES, _UNSAID = range(3)
_UNSAID_BYTE = bytes([_UNSAID])
_BOOL = {bool}
_SAID_MAX = 200
_OUT_OF_MEMORY = "the filter needed more memory than a worker has"


class SetUpFailed(Exception):
    """The source is no filter, or its first lines or its `set_up` failed.

    `kind` is "setup" or "memory"; `reason` has at most 500 bytes in UTF-8.
    """

    def __init__(self, reason: str, kind: str = "setup") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class Context:
    """What a filter may know besides the message; the same object for all messages of a batch."""

    __slots__ = ("_group", "_name", "_now_ms", "_topic", "_version")

    def __init__(self, group: str, name: str, version: int, topic: str, now_ms: int) -> None:
        self._group = group
        self._name = name
        self._version = version
        self._topic = topic
        self._now_ms = now_ms

    @property
    def group(self) -> str:
        """The consumer group that the filter belongs to."""
        return self._group

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._name

    @property
    def version(self) -> int:
        """The filter's version."""
        return self._version

    @property
    def topic(self) -> str:
        """The topic that is being pulled; empty while the filter is set up."""
        return self._topic

    @property
    def now_ms(self) -> int:
        """When the batch was judged, epoch ms by the filter server's clock; 0 at set-up."""
        return self._now_ms


Match = Callable[[MessageView, Context], object]
MatchBatch = Callable[[list[MessageView], Context], object]


class Filter:
    """One version of one filter, ready to judge."""

    def __init__(self, source: bytes, group: str, name: str, version: int) -> None:
        """Compile, execute and set up; raises SetUpFailed and nothing else."""
        self._who = (group, name, version)
        try:
            self._match, self._match_batch = self._set_up(source)
        except SetUpFailed:
            raise
        except MemoryError:
            raise SetUpFailed(_OUT_OF_MEMORY, "memory") from None
        except BaseException as error:  # noqa: BLE001 - foreign code, see below
            # Foreign code: it may raise SystemExit or KeyboardInterrupt, and they mean nothing more
            # here than any other error.
            raise SetUpFailed(_described(error, "while the filter was set up")) from None

    def _set_up(self, source: bytes) -> tuple[Match, MatchBatch | None]:
        group, name, version = self._who
        scope = new_scope(f"filter_{name}")
        exec(_compiled(source), scope)  # this is what the jail is for
        get = _face(scope)
        set_up = get("set_up")
        if set_up is not None:
            set_up(Context(group, name, version, "", 0))
        match, match_batch = get("match"), get("match_batch")
        if not callable(match) or not (match_batch is None or callable(match_batch)):
            raise SetUpFailed("`match` and `match_batch` must be functions")
        return match, match_batch

    def judge(
        self, topic: str, now_ms: int, records: bytes | memoryview, count: int
    ) -> tuple[bytes, int, str | None]:
        """The verdicts over `count` records that lie back to back, as stored.

        Returns exactly `count` bytes of 0, 1 or 2; then NO_FAILURE, RAISED or MEMORY; then the
        reason of the first 2, None without one. Never raises.
        """
        verdicts = bytearray(_UNSAID_BYTE) * count
        failures = _Failures()
        context = Context(*self._who, topic, now_ms)
        # One copy for the whole batch: a filter may keep a view, and the socket's buffer is reused.
        data = records if isinstance(records, bytes) else bytes(records)
        try:
            if self._match_batch is None:
                self._judge_each(data, context, verdicts, failures)
            else:
                self._judge_batch(data, context, verdicts, failures)
        except BaseException as error:  # noqa: BLE001 - foreign code, see below
            # What gets here was raised between two messages, by a signal handler of the filter for
            # example. Where it was not said otherwise, the verdict is "could not say" already.
            failures.note(error, "between two messages")
        return bytes(verdicts), failures.kind, failures.reason

    def _judge_each(
        self, data: bytes, context: Context, verdicts: bytearray, failures: _Failures
    ) -> None:
        match = self._match
        at = 0
        for index in range(len(verdicts)):
            try:
                end = next_record(data, at)
            except BadRecord as error:
                failures.note(error, f"at record {index} of the batch")
                return
            message = MessageView(data, at, end)
            at = end
            try:
                verdict = match(message, context)
            except BaseException as error:  # noqa: BLE001 - foreign code, see below
                # As in the constructor: whatever foreign code raises, it is its verdict here.
                failures.note(error, _place(message))
                continue
            if verdict is True:
                verdicts[index] = _PASSES
            elif verdict is False:
                verdicts[index] = _DOES_NOT_PASS
            else:
                failures.note_text(f"{_no_answer(verdict)}, {_place(message)}")

    def _judge_batch(
        self, data: bytes, context: Context, verdicts: bytearray, failures: _Failures
    ) -> None:
        assert self._match_batch is not None
        messages: list[MessageView] = []
        at = 0
        try:
            for _ in range(len(verdicts)):
                end = next_record(data, at)
                messages.append(MessageView(data, at, end))
                at = end
        except BadRecord as error:
            failures.note(error, f"at record {len(messages)} of the batch")
        verdicts[: len(messages)] = self._answers(messages, context, failures)

    def _answers(self, messages: list[MessageView], context: Context, failures: _Failures) -> bytes:
        """The verdicts over some messages; where the batch as a whole has none, one by one.

        So those that can be judged have their verdict, and the others say why not.
        """
        assert self._match_batch is not None
        count = len(messages)
        if not count:
            return b""
        try:
            answers = self._match_batch(list(messages), context)
            if type(answers) is list and len(answers) == count and set(map(type, answers)) == _BOOL:
                return bytes(answers)
        except BaseException as error:  # noqa: BLE001 - foreign code, see below
            # As in the constructor: whatever foreign code raises, it is its verdict here.
            if count == 1:
                failures.note(error, _place(messages[0]))
                return _UNSAID_BYTE
        else:
            if count == 1:
                failures.note_text("`match_batch` must return a list of as many bools as messages")
                return _UNSAID_BYTE
        return b"".join([self._answers([message], context, failures) for message in messages])


class _Failures:
    """Why the first of a batch's messages that have no verdict has none."""

    __slots__ = ("kind", "reason")

    def __init__(self) -> None:
        self.kind = NO_FAILURE
        self.reason: str | None = None

    def note(self, error: BaseException, where: str) -> None:
        if self.reason is None:
            if isinstance(error, MemoryError):
                self.kind, self.reason = MEMORY, _cut(f"{_OUT_OF_MEMORY}, {where}")
            else:
                self.kind, self.reason = RAISED, _described(error, where)

    def note_text(self, reason: str) -> None:
        if self.reason is None:
            self.kind, self.reason = RAISED, _cut(reason)


# -- the source -----------------------------------------------------------------------------------


def _compiled(source: bytes) -> CodeType:
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SetUpFailed(f"the source is not UTF-8 (byte {error.start})") from None
    try:
        return compile(text, _FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        raise SetUpFailed(_cut(f"SyntaxError{where}: {error.msg}")) from None


def _face(scope: dict[str, Any]) -> Callable[[str], Any]:
    """What finds `match` and its companions by name: the module, or an object of its one class."""
    if "match" in scope:
        return scope.get
    classes = [
        value
        for value in scope.values()
        if isinstance(value, type)
        and value.__module__ == scope["__name__"]
        and "match" in vars(value)
    ]
    if not classes:
        raise SetUpFailed(
            "the source has no function `match(message, context)`, and no class with such a method"
        )
    if len(classes) > 1:
        raise SetUpFailed("several classes have a method `match`; a source must have one filter")
    thing = classes[0]()
    return lambda name: getattr(thing, name, None)


# -- reasons --------------------------------------------------------------------------------------


def _place(message: MessageView) -> str:
    try:
        return f"at {message.topic}/{message.queue_id}@{message.offset}"
    except BadRecord:
        return "at a record that cannot be read"


def _no_answer(verdict: object) -> str:
    if verdict is None:
        return "`match` returned None; it must return True or False: is a `return` missing?"
    kind = type(verdict).__name__
    return f"`match` returned a {kind}; it must return True or False: write bool(...)"


def _described(error: BaseException, where: str) -> str:
    """`ValueError: no number, line 12 of the filter, at orders/3@57`."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        said = str(error)
    except BaseException:  # noqa: BLE001 - foreign code, see below
        # An exception of the filter's own may raise when it is asked what it means.
        said = "it does not say what it means"
    name = type(error).__name__
    text = f"{name}: {said}" if said else name
    # The place must survive however much the error says.
    text = text if len(text) <= _SAID_MAX else f"{text[:_SAID_MAX]}…"
    return _cut(f"{text}, line {line} of the filter, {where}" if line else f"{text}, {where}")


def _cut(text: str) -> str:
    """So much of a text as fits into a reply; what is no Unicode is replaced."""
    raw = text.encode("utf-8", "replace")
    return raw[:REASON_BYTES_MAX].decode("utf-8", "ignore").replace("\x00", "\ufffd")
