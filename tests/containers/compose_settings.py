"""The settings that a service of a compose file gets: arguments, environment, file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kourou.broker.config import BrokerSettings
from kourou.service.command_line import parse_arguments
from kourou.settings.sources import load_settings
from kourou_console.config import ConsoleSettings
from kourou_filter_server.config import FilterServerSettings
from kourou_ha_replica.app import ReplicaSettings
from kourou_namesrv.config import NamesrvSettings
from kourou_spark_etl.commands import with_jobs
from kourou_spark_etl.config import EtlSettings

KINDS: dict[str, type[Any]] = {
    "namesrv": NamesrvSettings,
    "broker": BrokerSettings,
    "ha-replica": ReplicaSettings,
    "filter-server": FilterServerSettings,
    "console": ConsoleSettings,
    "spark-etl": EtlSettings,
}
"""What each command of the images loads."""

IN_VOLUMES = (
    *("KOUROU_ACCESS_KEY_FILE", "KOUROU_INITIAL_USERS_FILE"),
    "KOUROU_EVENT_STORE_PASSWORD_FILE",
)
"""A service reads these files before it starts, and they are not on this machine; what is in them
is tested in test_compose_keys.py."""


def settings_of(composed: dict[str, Any], root: Path, name: str) -> Any:
    """Without a warning; the file is one of deploy, mounted where the command names it."""
    service = composed["services"][name]
    command, *words = service["command"]
    flag, inside, *rest = [word for word in words if word != "run"]
    assert flag == "-c"
    sources = {one["target"]: one["source"] for one in service["configs"]}
    file = Path(composed["configs"][sources[inside]]["file"])
    assert file.parent == root / "deploy"
    environment = dict(service["environment"])
    assert environment.get("KOUROU_INITIAL_USERS_FILE", inside) in sources
    environment |= dict.fromkeys(environment.keys() & set(IN_VOLUMES), "")
    arguments = parse_arguments(command, "", ["-c", str(file), *with_jobs(rest)])
    found = load_settings(
        KINDS[command], arguments=arguments.settings, environment=environment, file=file
    )
    assert found.warnings == (), name
    return found.settings
