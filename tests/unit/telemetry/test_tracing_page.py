"""docs/tracing.md says what the code does: names, numbers, variables, commands, and its example."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.telemetry.spans import BrokerSpans
from kourou.cli import up
from kourou.cli.main import EXIT_BAD_USAGE, main
from kourou.cli.up import LOCAL_COLLECTOR
from kourou.client.settings.client_settings import ClientSettings
from kourou.client.tracing import spans as client_tracing
from kourou.errors import ConfigError
from kourou.model.limits import SEND_CONTEXTS_MAX
from kourou.settings.declaration import settings_of
from kourou.telemetry import span_names, tracing_setup
from kourou.telemetry.tracing import LINKS_MAX, SpanKind
from kourou.telemetry.tracing_context import CONTEXT_BYTES
from kourou.telemetry.tracing_setup import (
    CLOSE_MS_MAX,
    QUEUE_SPANS_MAX,
    ROOTS_PER_S_MAX,
    SpanCounts,
)
from kourou_demo import tour
from kourou_demo.tour import TRACED_SHARE
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings

PAGE = (Path(__file__).parents[3] / "docs/tracing.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())


@pytest.mark.parametrize(
    "claim",
    [
        f"at most {ROOTS_PER_S_MAX} traces a second begin",
        f"linked to the others (at most {LINKS_MAX})",
        f"the {CONTEXT_BYTES} bytes of its prefix",
        f"from a queue of {QUEUE_SPANS_MAX:,};",
        f"waits at most { ({2_000: 'two'}[CLOSE_MS_MAX]) } seconds for its last spans",
        f"traces one message in { ({0.01: 'a hundred'}[TRACED_SHARE]) }",
        f"or else `{LOCAL_COLLECTOR}`",
        f"else `{client_tracing.SERVICE}`, `kourou-{BrokerService.name}`",
        f"`messaging.system={span_names.SYSTEM_VALUE}`",
    ],
)
def test_a_number_or_name_is_the_codes(claim: str) -> None:
    assert claim in PROSE


def test_one_frame_has_room_for_all_links_of_a_span() -> None:
    assert SEND_CONTEXTS_MAX + 1 == LINKS_MAX


def test_the_tree_has_every_operation() -> None:
    """And only those; what has no kind is a part of the broker's work."""
    (tree,) = (
        block for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) if "PRODUCER" in block
    )
    documented = dict(re.findall(r"^[│├└─ ]*([a-z]+)(?: orders)? {2,}(\w+)", tree, re.MULTILINE))
    kinds = {kind.name for kind in SpanKind}
    operations = {
        span_names.SEND: "PRODUCER",
        span_names.RECEIVE: "CLIENT",
        span_names.PROCESS: "CONSUMER",
        span_names.STORE: "SERVER",
        span_names.PULL: "SERVER",
    }
    parts = {
        span_names.APPEND,
        span_names.FLUSH,
        span_names.DISPATCH,
        span_names.WAIT,
        span_names.HOLD,
        span_names.SHIP,
        span_names.COPY,
        span_names.CONFIRM,
        span_names.REPLICATE,
        span_names.JUDGE,
    }
    assert {name: kind for name, kind in documented.items() if kind in kinds} == operations
    assert {name for name, kind in documented.items() if kind not in kinds} == parts


def test_what_is_not_of_the_conventions_begins_with_kourou() -> None:
    ours = {
        value
        for name, value in vars(span_names).items()
        if name.isupper() and isinstance(value, str) and "." in value
    }
    conventions = ("messaging.", "server.", "error.", "service.", "http.")
    assert {name for name in ours if not name.startswith((*conventions, "kourou."))} == set()


def test_the_variables_are_those_that_are_looked_at() -> None:
    source = Path(tracing_setup.__file__).read_text(encoding="utf-8")
    code = source.partition('"""\n\nfrom')[2]
    looked_at = set(re.findall(r'"(OTEL_[A-Z_]+)"', code))
    documented = set(re.findall(r"OTEL_[A-Z_]+", PAGE))
    assert looked_at - documented == {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"}
    # The others are OpenTelemetry's own affair.
    assert documented - looked_at == {
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_PROPAGATORS",
    }


def test_the_settings_are_there() -> None:
    documented = set(re.findall(r"`((?:trace_|trace[A-Z]|tracing)\w*)`", PAGE))
    keys = {one.key for one in settings_of(BrokerSettings)} | {
        field.name for field in fields(ClientSettings)
    }
    wanted = {key for key in keys if key.startswith(("traceOtlp", "trace_", "tracing"))}
    assert documented - {"trace_id"} == wanted  # which is a field of log lines


def test_the_reasons_of_lost_spans() -> None:
    export: Any = SimpleNamespace(counts=SpanCounts(), tracing=SimpleNamespace(now_ns=lambda: 0))
    families = {family.name: family for family in BrokerSpans(export).families({})}
    assert all(f"`{name}`" in PAGE for name in families)
    samples = families["kourou_trace_spans_dropped_total"].samples
    (documented,) = re.findall(r"by `reason`: ([^.]+)\.", PROSE)
    assert [labels["reason"] for labels, _ in samples] == re.findall(r"`(\w+)`", documented)


@pytest.mark.parametrize(
    ("command", "part", "ratio"),
    [("up", (up, "check_group"), None), ("demo", (tour, "open_view"), str(TRACED_SHARE))],
)
def test_the_option_of_the_commands_turns_it_on_for_their_processes(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    part: tuple[object, str],
    ratio: str | None,
) -> None:
    """The commands end here before they start anything; children get the environment."""
    seen: list[Mapping[str, str]] = []

    def end(*_: object, **__: object) -> NoReturn:
        seen.append(dict(os.environ))
        raise ConfigError("enough")

    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    monkeypatch.setattr(*part, end)
    for arguments in ([command], [command, "--trace"]):
        monkeypatch.setattr(os, "environ", dict(clean))
        assert main(arguments) == EXIT_BAD_USAGE
    without, traced = seen
    assert not [name for name in without if name.startswith("OTEL_")]
    assert traced["OTEL_EXPORTER_OTLP_ENDPOINT"] == LOCAL_COLLECTOR
    assert traced.get("OTEL_TRACES_SAMPLER_ARG") == ratio


async def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    source = (
        "from kourou import Client, ClientSettings\n"
        "from kourou.telemetry.otlp_receiver import OtlpReceiver\n\n"
        "async def example(address):\n" + textwrap.indent(example, "    ") + "    return span\n"
    )
    space: dict[str, Any] = {}
    exec(compile(source, "docs/tracing.md", "exec"), space)
    namesrv = NamesrvService(
        NamesrvSettings(listen_port=0, kv_config_path=tmp_path / "kvConfig.json")
    )
    await namesrv.recover(unexpected)
    address = (await namesrv.serve())["zmq"].removeprefix("tcp://")
    broker = BrokerService(
        BrokerSettings(
            store_root=tmp_path / "store",
            listen_port=0,
            admin_enabled=False,
            segment_size_bytes=1 << 20,
            namesrv_addr=address,
        )
    )
    await broker.recover(unexpected)
    await broker.serve()
    try:
        span = await space["example"](address)
    finally:
        for service in (broker, namesrv):
            await service.drain()
            await service.stop()
    assert (span.name, span.kind, span.service) == ("send orders", "PRODUCER", "kourou-client")


def unexpected(error: BaseException) -> None:
    raise AssertionError from error
