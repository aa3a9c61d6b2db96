"""What a running filter server shows is what the table of metrics says."""

from __future__ import annotations

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from kourou.model.filter import FilterFailure
from kourou.service.protocol_server import ProtocolServers
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, MetricKind, ServiceKind
from kourou_filter_server.app import FilterServerService, filter_families, filter_statistics
from kourou_filter_server.config import FilterServerSettings
from kourou_filter_server.interface import EvaluateBatch
from kourou_rigs.filter_bench import Bench, record


def test_every_family_has_the_labels_of_the_table(bench: Bench) -> None:
    bench.serving()
    bench.found(bench.pull(10), record(10))
    bench.results(bench.done(EvaluateBatch), "2", "raised", "oops")
    base = {"node_type": "filter-server", "node_id": "0"}
    shown = {one.name: one for one in filter_families(base, bench.core, ProtocolServers(), 1)}
    wanted = {
        spec.name: spec
        for spec in METRICS.values()
        if spec.services == (ServiceKind.FILTER_SERVER,)
    }
    assert set(shown) == set(wanted)
    for name, family in shown.items():
        assert family.kind is wanted[name].kind
        labels = {*wanted[name].labels, *BASE_LABELS[ServiceKind.FILTER_SERVER]}
        assert family.samples, name
        for sample, _ in family.samples:
            assert set(sample) == labels, name


def test_failed_pulls_of_each_kind_are_counted_from_0_on(bench: Bench) -> None:
    """Else the first one would be a series that begins, and no rise."""

    def failed() -> dict[str, float]:
        shown = {one.name: one for one in filter_families({}, bench.core, ProtocolServers(), 1)}
        counted = shown["kourou_filter_pulls_failed_total"]
        return {labels["kind"]: count for labels, count in counted.samples}

    bench.serving()
    none = {kind.value: 0 for kind in FilterFailure}
    assert failed() == none
    bench.core.statistics.pulls_failed[FilterFailure.LIED] += 2
    assert failed() == {**none, "lied": 2}


def test_statistics_are_for_people(bench: Bench) -> None:
    bench.serving()
    told = filter_statistics(bench.core)
    assert told["broker"] == "broker-a"
    assert told["trouble"] == ""
    assert told["filters"][0]["seen"] == 1
    assert told["workers"] == {"now": 1, "busy": 0, "wanted": 0}


async def test_the_page_of_a_server_without_a_broker() -> None:
    """It serves, says that it is not ready, and why; and shows the metrics of its table."""
    settings = FilterServerSettings(
        connect_which_broker="tcp://127.0.0.1:9",
        listen_port=0,
        unsafe_no_sandbox=True,
    )
    service = FilterServerService(settings)
    try:
        await service.recover(_failed)
        service._loop.start()  # type: ignore[union-attr]  # serve() would wait for the broker
        service._serving = True
        admin = service._listening["admin"]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{admin}/readyz") as answer:
                assert answer.status == 503
            async with session.get(f"{admin}/metrics") as answer:
                text = await answer.text()
    finally:
        await service.stop()
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text)
    }
    table = {
        name
        for name, spec in METRICS.items()
        if ServiceKind.FILTER_SERVER in spec.services and not spec.when
    }
    assert shown == table
    assert any(METRICS[name].kind is MetricKind.HISTOGRAM for name in shown)


def _failed(error: BaseException) -> None:
    raise error
