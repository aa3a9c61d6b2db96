"""`kourou history`, `kourou stateAt`, `kourou undo`: options and output.

As JSON, history and undo print one object per event, stateAt one object.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.command import GROUP, moment
from kourou.cli.admin.report import Report, local_time

if TYPE_CHECKING:
    from kourou.client.admin.history import HistoryEvent, StateAt
    from kourou.sync import Client

CHANGE_LENGTH_MAX = 72
KINDS = {"topics": "topic", "groups": "group", "settings": "setting"}

NameServer = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrv", metavar="ADDR", help="Name servers, host:port;… (default: NAMESRV_ADDR)."
    ),
]
Broker = Annotated[
    str | None,
    typer.Option("-b", "--broker", help="The broker name; required if there are several brokers."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON output, one object per line.")]


def history(
    aggregate: Annotated[
        str,
        typer.Argument(
            help=("For example topic/orders, group/till, filter/till/late (default: all).")
        ),
    ] = "",
    namesrv: NameServer = None,
    broker: Broker = None,
    before: Annotated[int | None, typer.Option(min=0, help="Only events before this one.")] = None,
    until: Annotated[str | None, typer.Option(help="Only changes up to this time.")] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help=("An event type, such as TopicPut (repeatable).")),
    ] = None,
    count: Annotated[
        int, typer.Option("--max", min=1, max=1_000, help=("Maximum number of results."))
    ] = 100,
    json: Json = False,
) -> int:
    """Show changes of topics, groups, settings and offsets: who, when, why; newest first."""
    until_ms = None if until is None else moment(until)
    with _client(namesrv) as client:
        page = client.admin.history.of(
            aggregate,
            broker=broker,
            before=before,
            until_ms=until_ms,
            types=types or (),
            count_max=count,
        )
    report = _report(page.decisions, as_json=json)
    if json or report is None:
        return 0
    if page.before is not None:
        report.remarks.append(f"cut at {count}; older ones: --before {page.before}")
    elif page.begins_at:
        report.remarks.append(f"changes before event {page.begins_at} are lost")
    elif not page.decisions:
        report.remarks.append("no changes")
    report.show(as_json=False)
    return 0


def state_at(
    aggregate: Annotated[
        str,
        typer.Argument(help="topic/…, group/…, setting/… or progress/… (default: all)."),
    ] = "",
    namesrv: NameServer = None,
    broker: Broker = None,
    at: Annotated[
        str | None, typer.Option("--at", help="now, ms, ISO, or yyyy-MM-dd#HH:mm:ss:SSS.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="State after this event instead.")
    ] = None,
    json: Json = False,
) -> int:
    """Show topics, groups, settings and offsets as they were at a time or after an event."""
    at_ms = None if at is None else moment(at)
    with _client(namesrv) as client:
        state = client.admin.history.state_at(aggregate, broker=broker, at_ms=at_ms, offset=offset)
    if json:
        found = {
            "broker": state.broker_name,
            "aggregate": state.aggregate,
            "nextOffset": state.next_offset,
            "atMs": state.at_ms,
            "value": state.value,
        }
        print(json_text.dumps(found))
        return 0
    _state_report(state).show(as_json=False)
    return 0


def undo(
    offset: Annotated[int, typer.Argument(min=0, help="The event's number in the history.")],
    namesrv: NameServer = None,
    broker: Broker = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason, kept with the event.")] = "",
    force: Annotated[
        bool,
        typer.Option("--force", help=("Revert even after later changes, or if messages are lost.")),
    ] = False,
    json: Json = False,
) -> int:
    """Revert a configuration change; the revert is recorded and can be reverted."""
    with _client(namesrv) as client:
        decided = client.admin.history.undo(offset, broker=broker, reason=reason, force=force)
    report = _report(decided, as_json=json)
    if report is not None:
        report.show(as_json=False)
    return 0


def _client(namesrv: str | None) -> Client:
    from kourou.sync import Client

    return Client(namesrv, group=GROUP)


# -- output ---------------------------------------------------------------------------------------


def _report(decisions: Sequence[HistoryEvent], *, as_json: bool) -> Report | None:
    """The events as a table; None if they were already printed as JSON."""
    if as_json:
        for each in decisions:
            print(json_text.dumps(_as_object(each)))
        return None
    rows = [
        (
            each.offset,
            local_time(each.at_ms),
            *(each.aggregate, each.type, change_of(each), each.actor, each.reason),
        )
        for each in decisions
    ]
    return Report(("event", "when", "what", "type", "change", "who", "why"), rows)


def _as_object(one: HistoryEvent) -> dict[str, Any]:
    return {
        "broker": one.broker_name,
        "offset": one.offset,
        "atMs": one.at_ms,
        "aggregate": one.aggregate,
        "type": one.type,
        "fields": one.fields,
        "actor": one.actor,
        "reason": one.reason,
        "traceId": one.trace_id,
        "undoes": one.undoes,
    }


def change_of(one: HistoryEvent) -> str:
    """A short description of an event's change: `write_queue_nums 4 → 8`."""
    fields = one.fields
    before = fields.get("before")
    after = next((fields[name] for name in ("topic", "group") if _is_table(fields.get(name))), None)
    match one.type:
        case "TopicPut" | "GroupPut" if after is not None and before is None:
            text = "created"
        case "TopicPut" | "GroupPut" if after is not None and _is_table(before):
            text = ", ".join(_differences(before, after))
        case "TopicDeleted" | "GroupDeleted":
            text = "deleted"
        case "SettingChanged":
            text = f"{_short(before)} → {_short(fields.get('value'))}"
        case "OffsetsReset" if _is_table(before) and _is_table(fields.get("offsets")):
            moved = (f"queue {name}" for name in _differences(before, fields["offsets"]))
            text = f"{fields.get('topic')}: {', '.join(moved)}"
        case _:
            text = json_text.dumps(fields, ensure_ascii=False)
    if one.undoes is not None:
        text = f"undoes {one.undoes}: {text}"
    return text if len(text) <= CHANGE_LENGTH_MAX else text[: CHANGE_LENGTH_MAX - 1] + "…"


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _differences(before: Any, after: Mapping[str, Any]) -> Iterator[str]:
    for name in after:
        if before.get(name) != after[name]:
            yield f"{name} {_short(before.get(name))} → {_short(after[name])}"


def _short(value: object) -> str:
    return "-" if value is None else json_text.dumps(value).strip('"')


def _state_report(state: StateAt) -> Report:
    """The state as a table: the fields of one aggregate, or one line for each of all."""
    if state.aggregate:
        kind = state.aggregate.partition("/")[0]
        rows = [(state.aggregate, *row) for row in _lines(kind, state.value)]
        report = Report(("what", "field", "value"), rows)
    else:
        rows = [
            (f"{KINDS.get(table, table)}/{name}", field, value)
            for table, entries in state.value.items()
            for name, held in entries.items()
            for field, value in _lines(KINDS.get(table, table), held)
        ]
        report = Report(("what", "field", "value"), rows)
    when = local_time(state.at_ms) or "the beginning"
    report.remarks.append(f"{state.broker_name} after {state.next_offset} events, as of {when}")
    return report


def _lines(kind: str, held: Any) -> Iterator[tuple[str, Any]]:
    if held is None:
        said = "as in the configuration file" if kind == "setting" else "does not exist"
        yield "-", said
    elif kind == "progress":
        for topic, queues in held.items():
            for queue, offset in queues.items():
                yield f"{topic} {queue}", offset
    elif isinstance(held, dict):
        yield from held.items()
    else:
        yield "value", held
