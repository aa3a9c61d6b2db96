"""`kourou admin why` and its arguments.

Lives here: names and letters. May not live here: what it does (kourou.cli.admin.why_actions), which
is imported when it is called.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.admin.options import Json, NameServer, command, report


@command("why", "Where a message is, why, and who has it.")
def why(
    message: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE", help="An id of either kind, topic/broker/queue@offset, or a key."
        ),
    ],
    namesrv: NameServer = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="Its topic; else all are searched.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", "--consumerGroup", help="Only this group."),
    ] = None,
    json: Json = False,
) -> int:
    """Where a message is stored and copied, and what each group made of it, or waits for.

    Every reason has a code that does not change; docs/why.md has them all. Exit code 1 if it is
    blocked or gone.
    """
    from kourou.cli.admin import why_actions

    return report(
        namesrv,
        lambda client: why_actions.why(client, message, topic, group),
        as_json=json,
    )
