"""The settings of a broker, under RocketMQ's names.

Lives here: all keys of `broker.conf` as one class, and loading them. The keys themselves stand in
kourou_broker.network_keys, .traffic_keys and .store_keys, each with its default, unit, range and
sentence; `seed` is the default that the design documents state, `rocketmq` that of RocketMQ 4.9,
and a reference page shows the three side by side.
May not live here: where values come from and how they are printed (kourou.service.settings), what
they do (each goes to the part it belongs to, in kourou_broker.wiring).

RocketMQ's keys that do nothing here stand in kourou.service.rocketmq_keys.

State: none; settings are read once. Keys marked dynamic may be changed while the broker runs, by
events (kourou.engine.settings).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from kourou.service.command_line import Arguments
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.service.settings import Loaded, load_settings, render
from kourou_broker.network_keys import NetworkKeys
from kourou_broker.store_keys import StoreKeys
from kourou_broker.traffic_keys import TrafficKeys


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(StoreKeys, TrafficKeys, NetworkKeys):
    """All keys of `broker.conf`. Making one checks them; ConfigError says what is wrong."""

    def __post_init__(self) -> None:
        """Refuse what no single key can tell is wrong."""
        self.check_process()
        self.check_network()
        self.check_store()
        self.delay_levels_ms  # noqa: B018 - raises if malformed

    def render(self) -> str:
        """`key=value` lines of every key."""
        return render(self, explained=False)

    def print_to_stdout(self, *, explained: bool) -> None:
        """What `-m` (explained) and `-p` print."""
        sys.stdout.write(render(self, explained=explained))


def load_broker_settings(
    arguments: Arguments, environment: Mapping[str, str]
) -> Loaded[BrokerSettings]:
    """Settings from the command line, the environment, the file and the defaults."""
    return load_settings(
        BrokerSettings,
        arguments=arguments.settings,
        environment=environment,
        file=arguments.file,
        inert=BROKER_KEYS,
    )
