"""Runs an uploaded filter on batches of messages, inside the sandbox.

A filter is a module with `match(message, context) -> bool`, or with one class that has it as a
method. Optional: `set_up(context)`, and `match_batch(messages, context) -> list[bool]`, which is
then called instead of `match`.

A result is one byte for each message: 0 it does not pass, 1 it passes, 2 not evaluated. An error at
one message causes a 2 for this message only, so that the caller can stop at it or skip it. Only
True and False are valid results: a function without a `return` is a broken filter, not one that
rejects everything.

The restricted globals and imports are not a security boundary. In Python every object leads to
every other, so a hostile filter can get `os`; only the sandbox of the process contains it. They
help honest authors: a filter that opens a file fails with a clear message the first time, not with
EPERM.

State: soft; the allowed modules are set by `prepare` before the first worker is forked. A filter's
own variables are lost when its worker ends, which can be at any time.
"""

from __future__ import annotations

import builtins
import codecs
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from kourou_filter_server.sandbox.view import BadRecord, MessageView, load_codecs, next_record

# -- global names and imports ---------------------------------------------------------------------

WITHHELD = (
    "__import__",
    "breakpoint",
    "compile",
    "copyright",
    "credits",
    "eval",
    "exec",
    "exit",
    "help",
    "input",
    "license",
    "open",
    "print",
    "quit",
)
"""Builtins that filters do not have; `__import__` and `print` are replaced by restricted ones."""

LOADED_LATE = ("_strptime", "stringprep", "encodings.idna")
"""Modules that allowed modules import only when used; inside the sandbox no file can be read."""

ENCODINGS = (
    "ascii",
    "latin_1",
    "utf_8_sig",
    "utf_16",
    "utf_16_le",
    "utf_16_be",
    "utf_32",
    "utf_7",
    "raw_unicode_escape",
    "unicode_escape",
    "punycode",
    "cp437",
    "cp850",
    "cp1250",
    "cp1251",
    "cp1252",
    "iso8859_2",
    "iso8859_15",
    "koi8_r",
    "big5",
    "euc_jp",
    "euc_kr",
    "gb18030",
    "gbk",
    "shift_jis",
)
"""Encodings for decoding bodies, in addition to UTF-8; each is a module, too."""

_allowed: frozenset[str] = frozenset()


def prepare(modules: Sequence[str], codec_paths: Sequence[str] = ()) -> None:
    """Load everything that filters may need; once, in the zygote, while files can still be read.

    `modules` is kourou.filtering.python_modules.MODULES; `codec_paths` are directories that may
    contain lz4 and zstandard. The process's time zone becomes UTC, so that local times are the same
    at every filter server. Raises ImportError if this Python lacks a module.
    """
    global _allowed
    for name in (*modules, *LOADED_LATE):
        importlib.import_module(name)
    for name in ENCODINGS:
        codecs.lookup(name)
    load_codecs(codec_paths)
    os.environ["TZ"] = "UTC0"
    time.tzset()
    _allowed = frozenset(modules)


def new_scope(name: str) -> dict[str, Any]:
    """The globals of a new filter; `name` is its `__name__`."""
    known = {key: value for key, value in vars(builtins).items() if key not in WITHHELD}
    known["__import__"] = _import
    known["print"] = _discard
    return {"__builtins__": known, "__name__": name}


def _import(
    name: str,
    scope: Mapping[str, object] | None = None,
    local: Mapping[str, object] | None = None,
    wanted: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """`import` and `from … import` of the allowed modules. Raises ImportError for all others."""
    if level != 0 or name not in _allowed:
        raise ImportError(f"a filter may not import {'.' * level}{name}", name=name)
    module = sys.modules[name]
    if wanted:
        return module
    return sys.modules[name.partition(".")[0]]


def _discard(*values: object, **options: object) -> None:
    """`print` without an effect, for filters that were developed elsewhere."""


# -- the filter -----------------------------------------------------------------------------------

NO_FAILURE, RAISED, MEMORY = range(3)
"""The failure that `LoadedFilter.evaluate` returns with its results."""

REASON_BYTES_MAX = 500
"""Maximum length of a reason in UTF-8: it must fit into the reply's field of 512 bytes."""

_FILE = "<filter>"
_DOES_NOT_PASS, _PASSES, _UNSAID = range(3)
_UNSAID_BYTE = bytes([_UNSAID])
_BOOL = {bool}
_SAID_MAX = 200
_OUT_OF_MEMORY = "the filter needed more memory than a worker has"


class SetUpFailed(Exception):
    """The source is not a filter, or its top-level code or its `set_up` failed.

    `kind` is "setup" or "memory"; `reason` has at most 500 bytes in UTF-8.
    """

    def __init__(self, reason: str, kind: str = "setup") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class Context:
    """What a filter can read in addition to the message; the same object for a whole batch."""

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
        """The topic of the messages; empty during set-up."""
        return self._topic

    @property
    def now_ms(self) -> int:
        """When the batch was started, epoch ms by the filter server's clock; 0 during set-up."""
        return self._now_ms


Match = Callable[[MessageView, Context], object]
MatchBatch = Callable[[list[MessageView], Context], object]


class LoadedFilter:
    """One version of one filter, ready for messages."""

    def __init__(self, source: bytes, group: str, name: str, version: int) -> None:
        """Compile, execute and set up. Raises only SetUpFailed."""
        self._who = (group, name, version)
        try:
            self._match, self._match_batch = self._set_up(source)
        except SetUpFailed:
            raise
        except MemoryError:
            raise SetUpFailed(_OUT_OF_MEMORY, "memory") from None
        except BaseException as error:  # noqa: BLE001 - untrusted code, see below
            # Untrusted code may raise SystemExit or KeyboardInterrupt, which are treated like any
            # other error.
            raise SetUpFailed(_described(error, "while the filter was set up")) from None

    def _set_up(self, source: bytes) -> tuple[Match, MatchBatch | None]:
        group, name, version = self._who
        scope = new_scope(f"filter_{name}")
        exec(_compiled(source), scope)  # the reason for the sandbox
        get = _face(scope)
        set_up = get("set_up")
        if set_up is not None:
            set_up(Context(group, name, version, "", 0))
        match, match_batch = get("match"), get("match_batch")
        if not callable(match) or not (match_batch is None or callable(match_batch)):
            raise SetUpFailed("`match` and `match_batch` must be functions")
        return match, match_batch

    def evaluate(
        self, topic: str, now_ms: int, records: bytes | memoryview, count: int
    ) -> tuple[bytes, int, str | None]:
        """The results for `count` consecutive records, as stored.

        Returns exactly `count` bytes of 0, 1 or 2; then NO_FAILURE, RAISED or MEMORY; then the
        reason of the first 2, None if there is none. Never raises.
        """
        results = bytearray(_UNSAID_BYTE) * count
        failures = _Failures()
        context = Context(*self._who, topic, now_ms)
        # One copy for the batch: a filter may keep a view, and the socket's buffer is reused.
        data = records if isinstance(records, bytes) else bytes(records)
        try:
            if self._match_batch is None:
                self._evaluate_each(data, context, results, failures)
            else:
                self._evaluate_batch(data, context, results, failures)
        except BaseException as error:  # noqa: BLE001 - untrusted code, see below
            # Raised between two messages, for example by a signal handler of the filter. Messages
            # without a result have a 2 already.
            failures.note(error, "between two messages")
        return bytes(results), failures.kind, failures.reason

    def _evaluate_each(
        self, data: bytes, context: Context, results: bytearray, failures: _Failures
    ) -> None:
        match = self._match
        at = 0
        for index in range(len(results)):
            try:
                end = next_record(data, at)
            except BadRecord as error:
                failures.note(error, f"at record {index} of the batch")
                return
            message = MessageView(data, at, end)
            at = end
            try:
                verdict = match(message, context)
            except BaseException as error:  # noqa: BLE001 - untrusted code, see below
                # As in the constructor: any exception of untrusted code is a failed evaluation.
                failures.note(error, _place(message))
                continue
            if verdict is True:
                results[index] = _PASSES
            elif verdict is False:
                results[index] = _DOES_NOT_PASS
            else:
                failures.note_text(f"{_no_answer(verdict)}, {_place(message)}")

    def _evaluate_batch(
        self, data: bytes, context: Context, results: bytearray, failures: _Failures
    ) -> None:
        assert self._match_batch is not None
        messages: list[MessageView] = []
        at = 0
        try:
            for _ in range(len(results)):
                end = next_record(data, at)
                messages.append(MessageView(data, at, end))
                at = end
        except BadRecord as error:
            failures.note(error, f"at record {len(messages)} of the batch")
        results[: len(messages)] = self._answers(messages, context, failures)

    def _answers(self, messages: list[MessageView], context: Context, failures: _Failures) -> bytes:
        """The results for some messages; if the batch as a whole has no valid result, one by one.

        So every message that can be evaluated has a result, and the others have a reason.
        """
        assert self._match_batch is not None
        count = len(messages)
        if not count:
            return b""
        try:
            answers = self._match_batch(list(messages), context)
            if type(answers) is list and len(answers) == count and set(map(type, answers)) == _BOOL:
                return bytes(answers)
        except BaseException as error:  # noqa: BLE001 - untrusted code, see below
            # As in the constructor: any exception of untrusted code is a failed evaluation.
            if count == 1:
                failures.note(error, _place(messages[0]))
                return _UNSAID_BYTE
        else:
            if count == 1:
                failures.note_text("`match_batch` must return a list of as many bools as messages")
                return _UNSAID_BYTE
        return b"".join([self._answers([message], context, failures) for message in messages])


class _Failures:
    """The reason of the first message in a batch that has no result."""

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
    """The lookup of `match` and the optional functions by name, in the module or its class."""
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
    except BaseException:  # noqa: BLE001 - untrusted code, see below
        # The `__str__` of a filter's own exception may raise.
        said = "it does not say what it means"
    name = type(error).__name__
    text = f"{name}: {said}" if said else name
    # The location must not be cut off by a long error text.
    text = text if len(text) <= _SAID_MAX else f"{text[:_SAID_MAX]}…"
    return _cut(f"{text}, line {line} of the filter, {where}" if line else f"{text}, {where}")


def _cut(text: str) -> str:
    """The part of a text that fits into a reply; invalid Unicode is replaced."""
    raw = text.encode("utf-8", "replace")
    return raw[:REASON_BYTES_MAX].decode("utf-8", "ignore").replace("\x00", "\ufffd")
