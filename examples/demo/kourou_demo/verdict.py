"""Checks whether the demo's counts agree."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from kourou_demo.followed import Traced


@dataclass(slots=True)
class WorstDay:
    """The counts of the second act; the `expected` ones come from the data set.

    `calls`: different calls that the gates received, `out_of_order`: flights whose calls arrived in
    another order. `retried`: departures at a second attempt. `dead_letters`: messages in the
    dead-letter queue, `resent`: those that were consumed after they had been sent again.
    `reminders`: delayed messages that arrived, `early` ones before their time. `tickets`: what the
    queues hold, `unwanted_tickets` were delivered without being booked. `asked`: transactions of
    the killed producer for which the broker checked back with another one.
    """

    calls: int = 0
    calls_expected: int = 0
    out_of_order: int = 0
    retried: int = 0
    retried_expected: int = 0
    dead_letters: int = 0
    dead_letters_expected: int = 0
    resent: int = 0
    reminders: int = 0
    reminders_expected: int = 0
    early: int = 0
    tickets: int = 0
    tickets_expected: int = 0
    unwanted_tickets: int = 0
    asked: int = 0
    asked_expected: int = 0

    def disagreements(self) -> list[str]:
        """All failures of this act, one line each."""
        dead, asked = self.dead_letters_expected, self.asked_expected
        checks = [
            (
                self.calls == self.calls_expected > 0,
                f"{self.calls} calls were consumed, expected {self.calls_expected}",
            ),
            (self.out_of_order == 0, f"{self.out_of_order} flights were called out of order"),
            (
                self.retried == self.retried_expected > 0,
                f"{self.retried} flights departed after a retry, expected {self.retried_expected}",
            ),
            (self.dead_letters == dead > 0, f"{self.dead_letters} dead letters, expected {dead}"),
            (
                self.resent == dead,
                f"{self.resent} of {dead} redelivered dead letters were consumed",
            ),
            (
                self.reminders == self.reminders_expected > 0,
                f"{self.reminders} reminders were delivered, expected {self.reminders_expected}",
            ),
            (self.early == 0, f"{self.early} reminders were delivered early"),
            (
                self.tickets == self.tickets_expected > 0,
                f"{self.tickets} tickets were stored, expected {self.tickets_expected}",
            ),
            (self.unwanted_tickets == 0, f"{self.unwanted_tickets} tickets were never booked"),
            (
                self.asked == asked > 0,
                f"{self.asked} transactions had a check-back, expected {asked}",
            ),
        ]
        return [text for good, text in checks if not good]


@dataclass(slots=True)
class LateArrivals:
    """The counts of the third act; the `expected` ones come from the data set.

    `late`: flights that the property filter passed, `overnight`: those that the body filter passed.
    `bytes_in_all` is the size of all bodies, the other sizes are those of the bodies that a group
    received. `lacking`: why no filter server ran; then there was no body filter.
    """

    late: int = 0
    late_expected: int = 0
    late_bytes: int = 0
    overnight: int = 0
    overnight_expected: int = 0
    overnight_bytes: int = 0
    bytes_in_all: int = 0
    lacking: str = ""

    def saved(self, sent_bytes: int) -> float:
        """The percentage of body bytes that were not sent to a group."""
        return 100 * (1 - sent_bytes / self.bytes_in_all) if self.bytes_in_all else 0.0

    def disagreements(self) -> list[str]:
        """All failures of this act, one line each."""
        late, overnight = self.late_expected, self.overnight_expected
        checks = [
            (
                self.late == late > 0,
                f"the SQL92 filter passed {self.late} flights, expected {late}",
            ),
            (
                bool(self.lacking) or self.overnight == overnight > 0,
                f"the Python filter passed {self.overnight} flights, expected {overnight}",
            ),
        ]
        checks += [
            (
                sent < self.bytes_in_all,
                f"filters saved no bytes: {sent} of {self.bytes_in_all} were sent",
            )
            for sent in (self.late_bytes, self.overnight_bytes)
        ]
        return [text for good, text in checks if not good]


@dataclass(slots=True)
class GroupOfThree:
    """The counts of the fourth act.

    `acknowledged` of `expected` flights were acknowledged; `lost` of these were not delivered.
    `stored`: what the queues hold. `redelivered`: deliveries beyond the first of a flight.
    `failover_ms`: from the kill of the leader to the next acknowledged send. `epoch_before` and
    `epoch_after` the kill. `lag_bytes`: replication lag of the slowest member at the end.
    """

    expected: int = 0
    acknowledged: int = 0
    lost: int = 0
    stored: int = 0
    redelivered: int = 0
    failover_ms: int = 0
    epoch_before: int = 0
    epoch_after: int = 0
    lag_bytes: int = 0
    logs_are_equal: bool = False

    @property
    def stored_twice(self) -> int:
        """Messages stored beyond the acknowledged ones."""
        return self.stored - self.acknowledged

    def disagreements(self) -> list[str]:
        """All failures of this act, one line each."""
        checks = [
            (
                self.acknowledged == self.expected > 0,
                f"the Raft group acknowledged {self.acknowledged} of {self.expected} flights",
            ),
            (self.lost == 0, f"the Raft group lost {self.lost} acknowledged flights"),
            (self.stored_twice == 0, f"the Raft group stored {self.stored_twice} flights twice"),
            (self.failover_ms > 0, "no send was acknowledged after the leader died"),
            (self.epoch_after > self.epoch_before > 0, "no new leader was elected"),
            (self.lag_bytes == 0, f"a replica lags by {self.lag_bytes} bytes"),
            (self.logs_are_equal, "the logs of the replicas differ"),
        ]
        return [text for good, text in checks if not good]

    def as_json(self) -> dict[str, int | bool | list[int]]:
        """The values for the final report."""
        return {
            "raft_acknowledged": self.acknowledged,
            "raft_lost": self.lost,
            "raft_stored_twice": self.stored_twice,
            "raft_redelivered": self.redelivered,
            "raft_failover_ms": self.failover_ms,
            "raft_epochs": [self.epoch_before, self.epoch_after],
            "raft_lag_bytes": self.lag_bytes,
            "raft_logs_equal": self.logs_are_equal,
        }


@dataclass(slots=True)
class SparkTables:
    """The counts of the last act.

    `rows`: those in the lake's Parquet files, `while_sent` those that existed when the last flight
    was sent. `duplicates`: rows beyond the first of a message, `missing`: messages without a row,
    `strange`: rows without a sent message, or with a different body. `totals`: values by carrier,
    of which `totals_right` equal those of pandas. `left_out`: why Spark was skipped.
    """

    rows: int = 0
    while_sent: int = 0
    duplicates: int = 0
    missing: int = 0
    strange: int = 0
    totals: int = 0
    totals_right: int = 0
    left_out: str = ""

    @property
    def aggregates_match(self) -> bool:
        """True if there are totals and all of them are right."""
        return self.totals_right == self.totals > 0

    def disagreements(self, published: int) -> list[str]:
        """All failures of this act, one line each; `published` messages should be rows."""
        if self.left_out:
            return []
        checks = [
            (self.rows == published, f"Parquet has {self.rows} rows of {published} flights"),
            (self.duplicates == 0, f"Parquet has {self.duplicates} duplicate rows"),
            (self.missing == 0, f"Parquet lacks {self.missing} flights"),
            (self.strange == 0, f"{self.strange} rows of Parquet differ from what was sent"),
            (
                self.aggregates_match,
                f"{self.totals_right} of {self.totals} totals by carrier agree with pandas",
            ),
        ]
        return [text for good, text in checks if not good]

    def as_json(self) -> dict[str, int | bool | str | None]:
        """The values for the final report; if Spark was skipped, null and the reason."""
        here = not self.left_out
        return {
            "spark_rows": self.rows if here else None,
            "spark_rows_while_sent": self.while_sent if here else None,
            "spark_duplicates": self.duplicates if here else None,
            "aggregates_match": self.aggregates_match if here else None,
            "spark_left_out": self.left_out or None,
        }


@dataclass(slots=True)
class Numbers:
    """All counts; each is taken by another party than the one it is compared with.

    `published`: acknowledged sends. `stored`: what the queues hold. `consumed_unique` and
    `redelivered`: from the consumers' ledgers. `queried` and `replayed`: messages returned; the
    `expected` ones come from the data set and from the queues.
    """

    events: int
    published: int = 0
    stored: int = 0
    consumed_unique: int = 0
    redelivered: int = 0
    queried: int = 0
    queried_expected: int = 0
    replayed: int = 0
    replayed_expected: int = 0
    worst_day: WorstDay = field(default_factory=WorstDay)
    late_arrivals: LateArrivals = field(default_factory=LateArrivals)
    group: GroupOfThree = field(default_factory=GroupOfThree)
    spark: SparkTables = field(default_factory=SparkTables)
    traced: Traced = field(default_factory=Traced)
    faults: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Messages that were acknowledged but not delivered."""
        return self.published - self.consumed_unique

    def disagreements(self) -> list[str]:
        """All failures of the demo, one line each; empty if it succeeded."""
        checks = [
            (self.published == self.events, f"{self.published} of {self.events} were published"),
            (self.stored == self.published, f"{self.stored} are stored, expected {self.published}"),
            (self.lost == 0, f"{self.lost} were lost"),
            (
                self.queried == self.queried_expected > 0,
                f"{self.queried} were found by key, expected {self.queried_expected}",
            ),
            (
                self.replayed == self.replayed_expected > 0,
                f"{self.replayed} were replayed, expected {self.replayed_expected}",
            ),
        ]
        first_act = [text for good, text in checks if not good]
        acts = self.worst_day.disagreements() + self.late_arrivals.disagreements()
        acts += self.group.disagreements()
        acts += self.spark.disagreements(self.published)
        return first_act + acts + self.faults

    def as_json(self) -> str:
        """The final report as one line of JSON; null for parts that were skipped."""
        arrivals = self.late_arrivals
        overnight = None if arrivals.lacking else arrivals.overnight
        return json.dumps(
            {
                "published": self.published,
                "stored": self.stored,
                "consumed_unique": self.consumed_unique,
                "redelivered": self.redelivered,
                "lost": self.lost,
                "queried": self.queried,
                "replayed": self.replayed,
                "calls": self.worst_day.calls,
                "out_of_order": self.worst_day.out_of_order,
                "retried": self.worst_day.retried,
                "dead_letters": self.worst_day.dead_letters,
                "resent": self.worst_day.resent,
                "reminders": self.worst_day.reminders,
                "early": self.worst_day.early,
                "tickets": self.worst_day.tickets,
                "unwanted_tickets": self.worst_day.unwanted_tickets,
                "asked": self.worst_day.asked,
                "late": arrivals.late,
                "overnight": overnight,
                **self.group.as_json(),
                **self.spark.as_json(),
                **self.traced.as_json(),
                "ok": not self.disagreements(),
            }
        )
