"""The alert rules: each is raised by figures that must raise it, and not by those of a good day."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml

from kourou.errors import Unavailable
from kourou.telemetry.metric_table import METRICS
from kourou_rigs.prometheus import find_program, promtool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/alerts.yml"
CONFIG = ROOT / "deploy/prometheus/prometheus.yml"


class Case(NamedTuple):
    """Series, a value every minute for so long, that raise an alert; and such as must not."""

    bad: Mapping[str, str]
    good: Mapping[str, str]
    minutes: int = 60


BROKER = 'cluster="c",node_id="broker-a",node_type="broker",instance="b:1",job="kourou"'
LAST_FAULT = f"kourou_store_last_fault_timestamp_seconds{{{BROKER}}}"
LAG = f'rocketmq_consumer_lag_messages{{{BROKER},consumer_group="g",topic="t",is_system="false"}}'
LEADS = f"kourou_replication_leads{{{BROKER}}}"
FOLLOWERS, IN_SYNC = (f"kourou_replication_{what}{{{BROKER}}}" for what in ("followers", "in_sync"))
LINK = f'kourou_raft_peer_connected{{{BROKER},peer="n2"}}'
QUERY = 'query="q",job="j",instance="s:1"'
GATEWAY = "kourou_gateway_requests_total"
UNREAD = f'{{{BROKER},consumer_group="g",topic="t",is_retry="false",is_system="false"}}'
DEAD = f"rocketmq_send_to_dlq_messages_total{UNREAD}"
LOST = f"kourou_retention_unread_deleted_total{UNREAD}"
UNJUDGED = 'kourou_filter_pulls_failed_total{node_id="0",kind="raised"}'


def flushes(latencies: Mapping[str, str]) -> dict[str, str]:
    return {
        f'kourou_store_flush_latency_bucket{{{BROKER},le="{bound}"}}': values
        for bound, values in latencies.items()
    }


CASES = {
    "KourouServiceAway": Case(
        {'up{job="kourou",service="broker",instance="b:1"}': "1x10 0x50"},
        {'up{job="kourou",service="broker",instance="b:1"}': "1x60", 'up{job="else"}': "0x60"},
    ),
    "KourouBrokerSilent": Case(
        {'kourou_namesrv_expired_brokers_total{instance="n:1"}': "0x54 1x6"},
        {'kourou_namesrv_expired_brokers_total{instance="n:1"}': "3x60"},
    ),
    "KourouNoLeader": Case(
        {LEADS: "1x10 0x50", LEADS.replace("b:1", "r:1"): "0x60"},
        {LEADS: "0x60", LEADS.replace("b:1", "r:1"): "1x60"},
    ),
    "KourouDiskFilling": Case(
        {f"kourou_store_disk_used_ratio{{{BROKER}}}": "0.5x10 0.8x50"},
        {f"kourou_store_disk_used_ratio{{{BROKER}}}": "0.74x60"},
    ),
    "KourouDiskRefusing": Case(
        {f"kourou_store_disk_refusing{{{BROKER}}}": "0x50 1x9"},
        {f"kourou_store_disk_refusing{{{BROKER}}}": "0x60"},
    ),
    "KourouStoreFaulted": Case(
        {f"kourou_store_faulted{{{BROKER}}}": "0x50 1x9"},
        {
            f"kourou_store_faulted{{{BROKER}}}": "0x60",
            LAST_FAULT: "-120x60",  # that was an hour ago
            LAST_FAULT.replace("b:1", "b:2"): "7200x60",  # and that will be
        },
    ),
    "KourouLogDamaged": Case(
        {f"kourou_quarantined_regions{{{BROKER}}}": "0x50 1x9"},
        {f"kourou_quarantined_regions{{{BROKER}}}": "0x60"},
    ),
    "KourouFlushSlow": Case(
        flushes({"300": "0+1x60", "1000": "0+9x60", "+Inf": "0+10x60"}),
        flushes({"300": "0+1000x60", "1000": "0+1001x60", "+Inf": "0+1001x60"}),
    ),
    "KourouReplicaNotInSync": Case(
        {FOLLOWERS: "2x60", IN_SYNC: "2x50 1x10", LEADS: "1x60"},
        {FOLLOWERS: "2x60", IN_SYNC: "2x60", LEADS: "1x60"},
    ),
    "KourouReplicaBehind": Case(
        {f'kourou_replication_lag_seconds{{{BROKER},broker_id="1"}}': "0x50 40+60x10"},
        {f'kourou_replication_lag_seconds{{{BROKER},broker_id="1"}}': "20x60"},
    ),
    "KourouReplicaGone": Case(
        {FOLLOWERS: "1x50 0x10", LEADS: "1x60"},
        {FOLLOWERS: "1x50 0x10", LEADS: "1x49 0x11"},  # it follows another one since
    ),
    "KourouRaftMemberAway": Case(
        {LINK: "1x50 0x10", LINK.replace("n2", "n1"): "1x60"}, {LINK: "1x58 0x2"}
    ),
    "KourouLagGrowing": Case(
        {LAG: "0+2000x60", LEADS: "1x60"}, {LAG: "90000-100x60", LEADS: "1x60"}
    ),
    "KourouDeadLetters": Case(
        {DEAD: "1x55 3x5"},
        {DEAD: "3x60"},
    ),
    "KourouUnreadExpiring": Case(
        {f"kourou_retention_unread_expiring_messages{UNREAD}": "0x30 9x30", LEADS: "1x60"},
        {f"kourou_retention_unread_expiring_messages{UNREAD}": "0x60", LEADS: "1x60"},
    ),
    "KourouUnreadDeleted": Case(
        {LOST: "1x110 3x10"},
        {LOST: "3x120"},
        minutes=120,
    ),
    "KourouRefusing": Case(
        {f'kourou_requests_refused_total{{{BROKER},response_code="2"}}': "0+60x60"},
        {f'kourou_requests_refused_total{{{BROKER},response_code="17"}}': "0+60x60"},
    ),
    "KourouAccessOpen": Case(
        {f"kourou_access_open{{{BROKER}}}": "1x60"},
        {
            f"kourou_access_open{{{BROKER}}}": "1x5 0x55",
            'kourou_access_open{node_type="spark-etl",instance="s:1"}': "1x60",
        },
    ),
    "KourouFilterQuarantined": Case(
        {f"kourou_filter_quarantined_versions{{{BROKER}}}": "0x50 1x9"},
        {f"kourou_filter_quarantined_versions{{{BROKER}}}": "0x60"},
    ),
    "KourouFilterFailing": Case(
        {UNJUDGED: "0+1x60"},
        {UNJUDGED: "7x60"},
    ),
    "KourouSparkQueryFailing": Case(
        {f"kourou_etl_failures_total{{{QUERY}}}": "0x55 1x5"},
        {f"kourou_etl_failures_total{{{QUERY}}}": "1x60"},
    ),
    "KourouSparkQueryStopped": Case(
        {f"kourou_etl_query_running{{{QUERY}}}": "1x50 0x10"},
        {
            f"kourou_etl_query_running{{{QUERY}}}": "1x56 0x4",  # it is started again
            f"kourou_etl_query_running{{{QUERY.replace('q', 'done')}}}": "1x40",
        },
    ),
    "KourouGatewayErrors": Case(
        {
            f'{GATEWAY}{{operation="send",status="200",instance="g:1"}}': "0+60x60",
            f'{GATEWAY}{{operation="send",status="503",instance="g:1"}}': "0+6x60",
        },
        {
            f'{GATEWAY}{{operation="send",status="200",instance="g:1"}}': "0+60x60",
            f'{GATEWAY}{{operation="send",status="404",instance="g:1"}}': "0+60x60",
        },
    ),
    "KourouSpansDropped": Case(
        {'kourou_trace_spans_dropped_total{reason="export_failed",instance="b:1"}': "0+500x60"},
        {'kourou_trace_spans_dropped_total{reason="export_failed",instance="b:1"}': "0+1x60"},
    ),
}

ALSO_BAD = [
    ("KourouServiceAway", {'up{job="collector",service="collector",instance="c:1"}': "1x10 0x50"}),
    # The broker is there again, and says that its last process failed.
    (
        "KourouStoreFaulted",
        {f"kourou_store_faulted{{{BROKER}}}": "0x60", LAST_FAULT: "_x50 3000x9"},
    ),
    # Who shows these shows them from 0 on, so the first ones are seen.
    ("KourouDeadLetters", {DEAD: "0x50 3x9"}),
    ("KourouUnreadDeleted", {LOST: "0x50 3x9"}),
    ("KourouFilterFailing", {UNJUDGED: "0x50 3x9"}),
    # Counters are a process's own: the next one begins at 0 again.
    ("KourouDeadLetters", {DEAD: "3x50 0x4 2x4"}),
    ("KourouUnreadDeleted", {LOST: "3x50 0x4 2x4"}),
]
"""What else must raise a rule."""

LONG_AGO = [("KourouDeadLetters", DEAD, 10), ("KourouUnreadDeleted", LOST, 60),
            ("KourouFilterFailing", UNJUDGED, 10)]  # fmt: skip
"""What counted something long before it was looked at, and the rule's window in minutes."""


def not_seen(ago: int) -> Iterator[str]:
    """Values every minute up to the 119th, of which none was to be had so many minutes before."""
    before = 119 - ago
    yield f"3x{before - 1} stale 3x{ago - 1}"  # it did not answer once
    yield f"3x{before - 10} _x11 3x{ago - 2}"  # Prometheus was away, or the machine slept
    yield f"_x{before + 1} 3x{ago - 1}"  # Prometheus was begun beside a suite that ran


@pytest.fixture(autouse=True)
def _programs() -> None:
    try:
        find_program("promtool")
    except Unavailable as missing:
        pytest.skip(f"needs Prometheus: {missing.message}")


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def tried(
    alert: str, series: Mapping[str, str], *, raised: bool, minutes: int = 60
) -> dict[str, Any]:
    fires = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": fires,
                "eval_time": f"{minutes - 1}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if raised else [],
            }
        ],
    }


def test_every_rule_is_raised_by_what_must_raise_it_and_by_nothing_else(tmp_path: Path) -> None:
    assert {rule["alert"] for rule in rules()} == set(CASES)
    tests = [
        tried(alert, series, raised=series is case.bad, minutes=case.minutes)
        for alert, case in CASES.items()
        for series in (case.bad, case.good)
    ]
    tests += [tried(alert, series, raised=True) for alert, series in ALSO_BAD]
    tests += [
        tried(alert, {series: values}, raised=False, minutes=120)
        for alert, series, window in LONG_AGO
        for values in not_seen(window)
    ]
    path = tmp_path / "tests.yml"
    path.write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}),
        encoding="utf-8",
    )
    code, said = promtool("test", "rules", str(path))
    assert code == 0, said


def test_the_files_are_valid() -> None:
    for code, said in (
        promtool("check", "rules", str(RULES)),
        promtool("check", "config", str(CONFIG)),
    ):
        assert code == 0, said


def test_rules_ask_for_metrics_that_there_are_and_say_what_to_do() -> None:
    page = (ROOT / "docs/observing.md").read_text(encoding="utf-8")
    for rule in rules():
        unknown = {name for name in metrics_of(rule["expr"]) if name not in METRICS} - {"up"}
        assert not unknown, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["runbook"] == f"docs/observing.md#{rule['alert'].lower()}"
        assert f"### {rule['alert']}\n" in page


def metrics_of(expression: str) -> set[str]:
    """The metrics that an expression asks for; a histogram's parts count as the histogram."""
    found: set[str] = set()

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            found.add(node.name.removesuffix("_bucket"))
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found
