"""What `kourou admin why` does: one question, one report."""

from __future__ import annotations

import msgspec

from kourou.cli.admin.report import Report
from kourou.client.explain.explanation import Explanation
from kourou.client.explain.text import lines_of
from kourou.sync import Client

BAD = frozenset({"blocked", "gone"})


class Told(Report):
    """An explanation: lines for people, one object for programs."""

    def __init__(self, explanation: Explanation) -> None:
        super().__init__(remarks=list(lines_of(explanation)), failed=is_bad(explanation))
        self.explanation = explanation

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            print(msgspec.json.encode(self.explanation).decode(), flush=True)
        else:
            super().show(as_json=False)


def is_bad(explanation: Explanation) -> bool:
    """Is it blocked or gone, for the message or for a group?"""
    answers = [explanation.causes[0], *(group.causes[0] for group in explanation.groups)]
    return any(one.severity in BAD for one in answers)


def why(client: Client, message: str, topic: str | None, group: str | None) -> Report:
    """Why a message is where it is."""
    return Told(client.admin.explain.message(message, topic=topic, group=group))
