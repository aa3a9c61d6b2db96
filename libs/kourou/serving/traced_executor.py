"""An effect executor that records trace spans.

A broker without tracing uses the plain executor, so tracing costs nothing on its hot path.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou.engine.effects import Append, CopyChunk, Effect
from kourou.protocol.messages.replication import LogChunk
from kourou.runtime.core import Notify, Reply
from kourou.serving.effect_executor import EffectExecutor
from kourou.serving.spans import BrokerSpans
from kourou.telemetry.tracing import current_context


class TracedExecutor(EffectExecutor):
    """An effect executor that reports to `spans`; its other arguments are those of Hands."""

    def __init__(self, spans: BrokerSpans, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._spans = spans

    def performers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the executor for each type of effect."""
        plain = super().performers()
        self._notify = plain[Notify]
        self._copy_chunk = plain[CopyChunk]
        return {
            **plain,
            Append: self._traced_append,
            Reply: self._traced_reply,
            Notify: self._traced_notify,
            CopyChunk: self._traced_copy,
        }

    def _traced_append(self, effect: Append) -> None:
        context = b"" if effect.to is None else self._spans.context(effect.to)
        if not context:
            self._append(effect)
            return
        began_ns = self._spans.now_ns()
        with current_context(context):
            self._append(effect)
        self._spans.appended(effect, context, began_ns)

    def _traced_reply(self, effect: Reply) -> None:
        self._reply(effect)
        if effect.to.traced:
            self._spans.answered(effect)

    def _traced_notify(self, effect: Notify) -> None:
        self._notify(effect)
        if type(effect.request) is LogChunk:
            self._spans.copies.shipped(effect.peer, effect.request)

    def _traced_copy(self, effect: CopyChunk) -> None:
        began_ns = self._spans.now_ns()
        self._copy_chunk(effect)
        if self._store.end >= effect.end:
            self._spans.copies.replicated(effect.data, effect.end, began_ns)

    def dispatch(self) -> None:
        """Project what was appended since the last call, and report it to the core."""
        began_ns = self._spans.now_ns()
        super().dispatch()
        self._spans.dispatched(began_ns, self._store.dispatch_behind_bytes)

    def _flush_store(self) -> int:
        began_ns = self._spans.now_ns()
        position = super()._flush_store()
        self._spans.flushed(began_ns, position)
        return position
