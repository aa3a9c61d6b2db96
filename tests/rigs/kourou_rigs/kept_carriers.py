"""Carriers that lead nowhere: what a service says is kept for a test to look at.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable

from kourou.runtime.effects import AskClient, Notify, Reply
from kourou.service.carrier import Carriers


class KeptCarriers(Carriers):
    """Keeps replies, notices and questions; `told` is called after each."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.replies: list[Reply] = []
        self.notices: list[Notify] = []
        self.questions: list[AskClient] = []
        self._told = told

    def reply(self, reply: Reply) -> None:
        """An answer; one that nobody wants is not kept, as a carrier does not send it."""
        if not reply.to.oneway:
            self.replies.append(reply)
            self._told()

    def notify(self, notice: Notify) -> None:
        """A notice."""
        self.notices.append(notice)
        self._told()

    def ask(self, question: AskClient) -> None:
        """A question."""
        self.questions.append(question)
        self._told()
