"""Kafka's settings, and what is missing to run it."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import pytest

from kourou_bench.kafka import Kafka, properties


def test_its_folder_its_ports_and_its_durability_are_settings() -> None:
    found = properties(Path("/logs"), 9_001, 9_002, "sync")
    assert found["log.dirs"] == "/logs"
    assert "PLAINTEXT://127.0.0.1:9001" in found["listeners"]
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9002"
    assert found["log.flush.interval.messages"] == "1"
    assert properties(Path("/logs"), 1, 2, "async")["log.flush.interval.ms"] == "500"


def test_what_is_missing_is_told_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(b"").hexdigest()
    (tmp_path / "kafka.jars").write_text(f"{digest} org.apache.kafka:kafka_2.13:4.1.0")
    kafka = Kafka(tmp_path, tmp_path, tmp_path / "cache")
    assert kafka.title() == "Kafka 4.1.0"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing = kafka.missing()
    assert "openjdk-17-jdk-headless" in missing
    assert "aiokafka is missing: pip install" in missing
