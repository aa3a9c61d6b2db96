"""RocketMQ's own Java client and mqadmin, unchanged, on our servers.

And on RocketMQ's, which proves the test. What each scenario does is in java/; which feature it
stands for is in features.toml.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.interop import rows

JAVA = ("java", "java-binary", "mqadmin")
PROGRAMS = {"java": "Interop", "mqadmin": "Mqadmin"}


def cases() -> Iterator[Any]:
    """Every scenario on our server; on RocketMQ's in slow runs only."""
    for client in JAVA:
        for name, features in rows.scenarios(client).items():
            marks = [pytest.mark.feature(*features)] if features else []
            yield pytest.param("kourou", client, name, marks=marks, id=f"kourou-{client}-{name}")
            slow = [pytest.mark.slow]
            yield pytest.param("rocketmq", client, name, marks=slow, id=f"rocketmq-{client}-{name}")


@pytest.mark.parametrize(("server", "client", "scenario"), list(cases()))
def test_the_java_client_does_as_ever(
    run_client: Callable[[str, str], Mapping[str, Any]], server: str, client: str, scenario: str
) -> None:
    line = run_client(client, server)[scenario]
    assert line["ok"], line["detail"]
    assert line["counts"], "it counted nothing: what did it try?"
    assert rows.written(client, server, scenario) is not False, "results.json says that it fails"


def test_every_scenario_stands_for_one_feature(class_path: str, tmp_path: Path) -> None:
    for client, program in PROGRAMS.items():
        home = f"-Duser.home={tmp_path}"
        listed = subprocess.run(
            ["java", home, "-cp", class_path, program, "scenarios=list"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        named = [name for row in rows.read_rows() for name in row.scenarios.get(client, ())]
        assert sorted(named) == sorted(listed)
    assert set(rows.scenarios("java-binary")) <= set(rows.scenarios("java"))


def test_every_feature_has_a_scenario_and_every_result_is_of_one() -> None:
    bare = [row.title for row in rows.read_rows() if not row.scenarios]
    assert not bare
    results = json.loads(rows.RESULTS.read_text(encoding="utf-8"))
    for client in rows.read_clients():
        for told in results[client].values():
            assert set(told["passed"]) == set(rows.scenarios(client)), client
