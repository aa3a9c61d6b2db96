"""OpenTelemetry spans of a client's sends, pulls and handlers.

    send {topic}      PRODUCER   from the call to the broker's reply; its context is sent in the
                                 message's properties and in the frame's header
    receive {topic}   CLIENT     one pull, with links to the messages it returned
    process {topic}   CONSUMER   one call of a handler; child of the message's span and linked to
                                 it; a call with several messages has links only

A context that the application has set in a message's properties is never overwritten. A client
without tracing has no object of this module, and its hot paths only check for that.

State: soft. Spans that are open when the process dies are lost.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kourou.errors import ConfigError, KourouError
from kourou.model.message import Property, SendResult
from kourou.model.topic import MessageQueue
from kourou.protocol.wire.frames import NO_TRACE
from kourou.telemetry import span_names as names
from kourou.telemetry.tracing_context import (
    TRACE_CONTEXT,
    TRACEPARENT,
    context_of,
    is_sampled,
    traceparent_of,
)
from kourou.telemetry.tracing_setup import (
    SHARED,
    TracingOptions,
    application_tracing,
    tracing_options,
)

if TYPE_CHECKING:
    from kourou.client.consumer.handlers import HandlerReport, Item
    from kourou.client.consumer.received import ReceivedMessage
    from kourou.client.producer.pending_sends import Outcome, PendingSend
    from kourou.client.settings.client_settings import ClientSettings
    from kourou.telemetry.tracing import TracedSpan, Tracing

SERVICE = "kourou-client"
"""The service name in traces, unless OTEL_SERVICE_NAME is set."""

_log = logging.getLogger("kourou.client")


class ClientTracing:
    """The spans of one client. Callable from any thread."""

    def __init__(self, tracing: Tracing, options: TracingOptions | None = None) -> None:
        from kourou.telemetry import tracing as spans

        self._tracing = tracing
        self._options = options
        self._spans = spans
        self.client_id = ""

    def close(self) -> None:
        """End tracing; blocks briefly until the last spans are exported."""
        options, self._options = self._options, None
        if options is not None:
            SHARED.release(options)

    def _about(self, operation: str, kind: str, queue: MessageQueue) -> dict[str, str | int | bool]:
        return {
            names.SYSTEM: names.SYSTEM_VALUE,
            names.OPERATION_NAME: operation,
            names.OPERATION_TYPE: kind,
            names.NAMESPACE: "",
            names.DESTINATION: queue.topic,
            names.PARTITION: str(queue.queue_id),
            names.CLIENT_ID: self.client_id,
        }

    # -- sending ----------------------------------------------------------------------------------

    def sending(
        self,
        queue: MessageQueue,
        unique_key: str,
        tag: str | None,
        keys: str,
        properties: Mapping[str, str] | None,
        own: Mapping[str, str] | None,
    ) -> tuple[TracedSpan | None, Mapping[str, str] | None]:
        """Return the span, if the message is traced, and the properties of a message to be sent.

        `own` are the properties that the client adds; they determine the message type.
        """
        parent = self._tracing.decide()
        given = _context_in(properties) if properties else None
        if given is not None and not parent:
            parent = given  # the application's context takes precedence
        if parent is None:
            return None, properties
        if parent and not is_sampled(parent):
            return None, _with(properties, {TRACEPARENT: traceparent_of(parent)})
        about = self._about(names.SEND, "send", queue)
        about[names.MESSAGE_ID] = unique_key
        about[names.MESSAGE_TYPE] = _message_type(own)
        if tag:
            about[names.MESSAGE_TAG] = tag
        if keys:
            about[names.MESSAGE_KEYS] = keys
        span = self._tracing.start(
            names.span_name(names.SEND, queue.topic), self._spans.SpanKind.PRODUCER, parent, about
        )
        if span is None:
            return None, properties
        return span, _with(
            properties, {**span.properties(), TRACEPARENT: traceparent_of(span.context)}
        )

    def frame_contexts(self, messages: Sequence[PendingSend]) -> tuple[bytes, bytes]:
        """Return the contexts of a frame's traced messages: the first one, and the others."""
        found = [message.span.context for message in messages if message.span is not None]
        if not found:
            return NO_TRACE, b""
        return found[0], b"".join(found[1 : self._spans.LINKS_MAX])

    def settled(self, final: Sequence[tuple[PendingSend, Outcome | None]]) -> None:
        """End the spans of messages whose outcomes are known."""
        for message, outcome in final:
            span = message.span
            if span is None:
                continue
            host, _, port = message.target.address.rpartition(":")
            span.set({names.SERVER_ADDRESS: host})
            if port.isdecimal():
                span.set({names.SERVER_PORT: int(port)})
            if isinstance(outcome, KourouError):
                span.end(error_type=type(outcome).__name__, error=str(outcome))
            else:
                if isinstance(outcome, SendResult):
                    span.set({names.OFFSET: outcome.offset})
                span.end()

    # -- pulling ----------------------------------------------------------------------------------

    def receiving(self, group: str, queue: MessageQueue) -> TracedSpan | None:
        """Start the span of a pull, if it is traced."""
        parent = self._tracing.decide()
        if parent is None or (parent and not is_sampled(parent)):
            return None
        about = self._about(names.RECEIVE, "receive", queue)
        about[names.GROUP] = group
        return self._tracing.start(
            names.span_name(names.RECEIVE, queue.topic), self._spans.SpanKind.CLIENT, parent, about
        )

    def judged(self, span: TracedSpan, name: str, version: int | None) -> None:
        """Record that the pull used a filter, with its version if it ran."""
        span.set(
            {names.FILTER: name}
            if version is None
            else {names.FILTER: name, names.FILTER_VERSION: version}
        )

    def received(self, span: TracedSpan, messages: Sequence[ReceivedMessage]) -> None:
        """End the span of a successful pull that returned these messages."""
        span.set({names.BATCH_COUNT: len(messages)})
        span.link(_sampled_of(messages, self._spans.LINKS_MAX))
        span.end()

    # -- processing -------------------------------------------------------------------------------

    @contextmanager
    def processing(self, group: str, item: Item) -> Iterator[None]:
        """Trace a handler call; spans that the handler creates are its children."""
        headers = {} if isinstance(item, list) else _protocol_of(item)
        with self._spans.continued(headers):
            span = self._process_span(group, item)
            if span is None:
                yield
                return
            with span.current():
                try:
                    yield
                except BaseException as error:
                    _failed(span, error)
                    raise
                span.end()

    def _process_span(self, group: str, item: Item) -> TracedSpan | None:
        several = isinstance(item, list)
        messages: list[ReceivedMessage] = item if several else [item]
        parent = self._tracing.decide()
        links = _sampled_of(messages, self._spans.LINKS_MAX)
        if several and links:
            parent = self._spans.NEW  # the messages are traced by another process
        if parent is None or (parent and not is_sampled(parent)):
            return None
        first = messages[0]
        about = self._about(names.PROCESS, "process", first.queue)
        about[names.GROUP] = group
        if several:
            about[names.BATCH_COUNT] = len(messages)
        else:
            about[names.MESSAGE_ID] = first.message_id
            about[names.OFFSET] = first.offset
        if first.attempt > 1:
            about[names.ATTEMPT] = first.attempt
        return self._tracing.start(
            names.span_name(names.PROCESS, first.topic),
            self._spans.SpanKind.CONSUMER,
            parent,
            about,
            links=links,
        )

    def coroutine_handler(
        self, group: str, handler: Callable[[Any], Awaitable[Any]]
    ) -> Callable[[Any], Awaitable[Any]]:
        """Return a traced `async def` handler."""

        async def traced(item: Item) -> Any:
            with self.processing(group, item):
                return await handler(item)

        return traced

    def plain_handler(self, group: str, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a traced plain handler."""

        def traced(item: Item) -> Any:
            with self.processing(group, item):
                return handler(item)

        return traced

    def stream_report(self, group: str, report: HandlerReport) -> HandlerReport:
        """Return a traced report for an iterator: from delivery of a message to its outcome."""
        return _StreamReport(self, group, report)

    def handed_out(self, group: str, message: ReceivedMessage) -> TracedSpan | None:
        """Start the span of a delivered message; it ends when the message is acknowledged."""
        with self._spans.continued(_protocol_of(message)):
            return self._process_span(group, message)


class _StreamReport:
    """Starts a span when an iterator asks whether a message is wanted, its last step."""

    def __init__(self, tracing: ClientTracing, group: str, report: HandlerReport) -> None:
        self._tracing = tracing
        self._group = group
        self._report = report
        self._under_way: weakref.WeakKeyDictionary[ReceivedMessage, TracedSpan] = (
            weakref.WeakKeyDictionary()
        )

    def wanted(self, item: Item) -> bool:
        """Return whether the item's queue is still assigned; if so, it is delivered now."""
        if not self._report.wanted(item):
            return False
        span = self._tracing.handed_out(self._group, item)
        if span is not None:
            self._under_way[item] = span
        return True

    def finished(self, item: Item) -> None:
        """Record that the message was consumed."""
        span = self._under_way.pop(item, None)
        if span is not None:
            span.end()
        self._report.finished(item)

    def failed(self, item: Item, error: BaseException) -> None:
        """Record that the message failed."""
        span = self._under_way.pop(item, None)
        if span is not None:
            _failed(span, error)
        self._report.failed(item, error)


def client_tracing(
    settings: ClientSettings, environment: Mapping[str, str] = os.environ
) -> ClientTracing | None:
    """Return the tracing of a client that is being opened; None if tracing is not set up.

    If the settings request tracing that is not possible, this raises ConfigError. The environment
    may be meant for other programs, so for its values only a warning is logged.
    """
    ratio, endpoint = settings.trace_sample_ratio, settings.trace_otlp_endpoint
    roots_per_s = settings.trace_roots_per_s
    if not settings.tracing:
        return None
    if not endpoint:
        application = application_tracing(ratio, roots_per_s)
        if application is not None:
            return ClientTracing(application)
    try:
        options = tracing_options(environment, service_name=SERVICE, endpoint=endpoint, ratio=ratio)
        if options is None:
            return None
        options = replace(options, roots_per_s=roots_per_s)
        return ClientTracing(SHARED.acquire(options).tracing, options)
    except ConfigError as error:
        if endpoint:
            raise
        _log.warning(
            "tracing-disabled: tracing is disabled for this client: %(error)s", {"error": error}
        )
        return None


def _message_type(own: Mapping[str, str] | None) -> str:
    """Return the message type as OpenTelemetry's conventions name it."""
    if not own:
        return "normal"
    if Property.TRAN_MSG.value in own:
        return "transaction"
    return "delay" if Property.DELAY.value in own else "normal"


def _failed(span: TracedSpan, error: BaseException) -> None:
    span.end(error_type=type(error).__qualname__, error=str(error), exception=error)


def _with(properties: Mapping[str, str] | None, headers: dict[str, str]) -> Mapping[str, str]:
    """Return the properties with the trace context, unless the application has set one."""
    if properties and (TRACEPARENT in properties or TRACE_CONTEXT in properties):
        return properties
    headers[TRACE_CONTEXT] = headers[TRACEPARENT]
    return {**headers, **(properties or {})}


def _context_in(properties: Mapping[str, str]) -> bytes | None:
    text = properties.get(TRACEPARENT) or properties.get(TRACE_CONTEXT)
    return context_of(text) if text else None


def _context_of_message(message: ReceivedMessage) -> bytes | None:
    text = message.traceparent
    return context_of(text) if text else None


def _protocol_of(message: ReceivedMessage) -> Mapping[str, str]:
    """Return the properties if they contain a context; otherwise nothing is decoded."""
    return {} if _context_of_message(message) is None else message.properties


def _sampled_of(messages: Sequence[ReceivedMessage], count_max: int) -> list[bytes]:
    found: list[bytes] = []
    for message in messages:
        context = _context_of_message(message)
        if context is not None and is_sampled(context):
            found.append(context)
            if len(found) == count_max:
                break
    return found
