"""A real broker process whose disk fails, fills up or ends the process, as ordered.

python -m kourou_rigs.failing_broker --fail-sync 7 -c broker.conf -n 127.0.0.1:19876
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.service.entry import run_from_arguments
from kourou.service.lifecycle import leave
from kourou_rigs.failing_disk import FailingDisk, Faults

MODULE = "kourou_rigs.failing_broker"


def arguments_of(faults: Faults, root: Path | None = None) -> list[str]:
    """The arguments of this module, to be followed by the broker's own.

    `root` is the folder that `capacity_bytes` limits; the default is the store.
    """
    given = {
        "--within": faults.within,
        "--fail-sync": faults.fail_sync,
        "--die-after-sync": faults.die_after_sync,
        "--capacity-bytes": faults.capacity_bytes,
        "--capacity-of": root or "",
    }
    return [text for name, value in given.items() if value for text in (name, str(value))]


def run(argv: Sequence[str]) -> int:
    """Run the broker; returns its exit code."""
    parser = argparse.ArgumentParser(prog=MODULE, allow_abbrev=False, add_help=False)
    parser.add_argument("--within", default=Faults().within)
    parser.add_argument("--fail-sync", type=int, default=0)
    parser.add_argument("--die-after-sync", type=int, default=0)
    parser.add_argument("--capacity-bytes", type=int, default=0)
    parser.add_argument("--capacity-of", type=Path)
    ordered, rest = parser.parse_known_args(list(argv))
    faults = Faults(
        within=ordered.within,
        fail_sync=ordered.fail_sync,
        die_after_sync=ordered.die_after_sync,
        capacity_bytes=ordered.capacity_bytes,
    )

    def make(settings: BrokerSettings) -> BrokerService:
        root = ordered.capacity_of or settings.store_root
        return BrokerService(settings, disk=FailingDisk(root, faults))

    return run_from_arguments("broker", "A broker with a failing disk.", rest, BrokerSettings, make)


if __name__ == "__main__":
    leave(run(sys.argv[1:]))
