"""Transports without connections, which keep a service's output for a test.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable

from kourou.runtime import AskClient, Notify, Reply
from kourou.service.protocol_server import ProtocolServers


class KeptCarriers(ProtocolServers):
    """Keeps replies, notifications and requests; `told` is called after each."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.replies: list[Reply] = []
        self.notices: list[Notify] = []
        self.questions: list[AskClient] = []
        self._told = told

    def reply(self, reply: Reply) -> None:
        """Keep a reply, except to one-way requests, to which transports send none."""
        if not reply.to.oneway:
            self.replies.append(reply)
            self._told()

    def notify(self, notice: Notify) -> None:
        """Keep a notification."""
        self.notices.append(notice)
        self._told()

    def ask(self, question: AskClient) -> None:
        """Keep a request."""
        self.questions.append(question)
        self._told()
