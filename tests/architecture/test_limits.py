"""Limits stand in one file: whoever asks "how much may a client demand?" reads one page."""

from __future__ import annotations

import ast

LIMITS = "libs/kourou/model/limits.py"

OWN_AFFAIRS = {
    "libs/kourou/telemetry/tracing.py": "how much of our own work is traced",
    "libs/kourou/telemetry/tracing_setup.py": "the exporter's own queue and its end",
    "libs/kourou/telemetry/metrics.py": "the size of our own page",
    "libs/kourou/engine/admin/topic_table.py": "the permission bits there are",
    "libs/kourou/engine/retention.py": "segments one forced pass takes",
    "libs/kourou/eventstore/event_store.py": "rows of one read of ours",
    "libs/kourou/eventstore/database.py": "the database's journal and password file",
    "libs/kourou/service/lifecycle.py": "how long our own stop may take",
    "libs/kourou/store/index/index_file.py": "the largest number the field holds",
    "libs/kourou/store/index/key_index.py": "files kept open",
    "libs/kourou/store/open_files.py": "files kept open",
    "libs/kourou/store/queues/consume_queue.py": "how a queue file is written",
    "libs/kourou/store/retention.py": "how far a clock is believed",
    "libs/kourou/transport/rate_limited_log.py": "kinds of log lines remembered",
    "libs/kourou/transport/zmq_socket.py": "sockets of one process",
    "libs/kourou/client/admin/topics.py": "how long we wait for our own topic",
    "libs/kourou/client/consumer/queue_consumption.py": "log lines that are not repeated",
    "libs/kourou/client/filters/pulls.py": "where chance is even enough",
    "libs/kourou/client/introspection/running_info.py": "how much of our own waiting we tell",
    "libs/kourou/client/session/io_thread.py": "how long we wait for our own thread",
    "libs/kourou/service/os_processes.py": "the kernel's own bound",
    "libs/kourou/broker/raft/raft_group.py": "how long our own timer sleeps",
    "libs/kourou/broker/telemetry/spans.py": "spans kept open",
    "libs/kourou/broker/storage/effect_executor.py": "how often we look",
    "services/filter-server/kourou_filter_server/config.py": "descriptors of our own zygote",
    "services/filter-server/kourou_filter_server/sandbox/view.py": "sandboxed; a test compares",
    "services/filter-server/kourou_filter_server/sandbox/kernel.py": "inside the sandbox",
    "services/filter-server/kourou_filter_server/sandbox/limits.py": "inside the sandbox",
    "services/filter-server/kourou_filter_server/sandbox/runtime.py": "inside the sandbox",
    "services/filter-server/kourou_filter_server/sandbox/wire.py": "frames of our own processes",
    "services/filter-server/kourou_filter_server/zygote_link.py": "how long we wait for it",
    "services/filter-server/kourou_filter_server/spans.py": "spans kept open",
    "services/filter-server/kourou_filter_server/context.py": "versions whose figures are kept",
    "services/filter-server/kourou_filter_server/discipline.py": "versions remembered",
    "services/spark-etl/kourou_spark_etl/sink/draft_columns.py": "when we go row by row",
    "services/spark-etl/kourou_spark_etl/source/network.py": "questions of ours at a time",
    "services/spark-etl/kourou_spark_etl/source/readers.py": "how we ask again",
    "services/spark-etl/kourou_spark_etl/source/store_reader.py": "how far back we look for an end",
}
"""Files whose `*_MAX` bound our own doings and nothing that somebody else sends or demands."""


def test_what_bounds_others_stands_in_the_file_of_limits(production: list) -> None:
    astray = [
        f"{source.path}: {name}: move it to {LIMITS}, or say here why it bounds nobody else"
        for source in production
        if source.path.startswith(("libs", "services"))
        if source.path not in OWN_AFFAIRS
        and source.path != LIMITS
        and not {"cli", "testing"} & set(source.path.split("/"))
        for name in bounds(source.tree)
    ]
    assert not astray, "\n".join(astray)


def test_every_exception_is_used(production: list) -> None:
    bounding = {source.path for source in production if any(bounds(source.tree))}
    assert not set(OWN_AFFAIRS) - bounding


def bounds(tree: ast.Module) -> list[str]:
    """Public module constants that are named like a limit."""
    return [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and target.id.endswith("_MAX")
        and not target.id.startswith("_")
        and isinstance(node.value, ast.Constant | ast.BinOp)
    ]
