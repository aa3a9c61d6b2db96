"""`kourou admin why` and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.admin.options import Json, NameServer, command, report


@command("why", "Explain where a message is and who consumed it.")
def why(
    message: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE", help="A message ID, topic/broker/queue@offset, or a key."
        ),
    ],
    namesrv: NameServer = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="The topic (default: search all).")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", "--consumerGroup", help="Only this group."),
    ] = None,
    json: Json = False,
) -> int:
    """Explain where a message is stored and replicated, and its state in each group.

    Every reason has a code that does not change; docs/why.md has them all. Exit code 1 if it is
    blocked or gone.
    """
    from kourou.cli.admin import why_actions

    return report(
        namesrv,
        lambda client: why_actions.why(client, message, topic, group),
        as_json=json,
    )
