"""The action of `kourou admin why`: one request, one report."""

from __future__ import annotations

import msgspec

from kourou.cli.admin.report import Report
from kourou.client.explain.explanation import Explanation, lines_of
from kourou.sync import Client

BAD = frozenset({"blocked", "gone"})


class Told(Report):
    """An explanation: text lines, or one JSON object."""

    def __init__(self, explanation: Explanation) -> None:
        super().__init__(remarks=list(lines_of(explanation)), failed=is_bad(explanation))
        self.explanation = explanation

    def show(self, *, as_json: bool) -> None:
        """Print the explanation."""
        if as_json:
            print(msgspec.json.encode(self.explanation).decode(), flush=True)
        else:
            super().show(as_json=False)


def is_bad(explanation: Explanation) -> bool:
    """True if the message, or a group's copy of it, is blocked or gone."""
    answers = [explanation.causes[0], *(group.causes[0] for group in explanation.groups)]
    return any(one.severity in BAD for one in answers)


def why(client: Client, message: str, topic: str | None, group: str | None) -> Report:
    """Explain the state of a message."""
    return Told(client.admin.explain.message(message, topic=topic, group=group))
