"""Every example of the page about the plugin is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou_filter_server.zygote_link import missing

pytest_plugins = ("pytester",)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "testing-with-kourou.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_every_example_runs_as_it_stands(page, pytester, kourou_broker):
    """`kourou_broker`: what an inner session imports is forgotten with it; this has all of it."""
    wanted = 0
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        if block.startswith("# conftest.py") or "filter_servers" in block:
            continue  # run by the next tests
        pytester.makepyfile(**{f"test_{number}": block})
        wanted += block.count("def test_")
    assert wanted > 10
    arguments = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error")
    pytester.runpytest_inprocess(*arguments).assert_outcomes(passed=wanted)


def test_the_settings_of_its_conftest_are_a_brokers(page, pytester, kourou_broker):
    (block,) = re.findall(r"```python\n(# conftest\.py.*?)```", page, re.DOTALL)
    pytester.makeconftest(block)
    pytester.makepyfile(
        """
        def test_it(kourou_client):
            found = kourou_client.admin.brokers.config("broker-a")
            assert (found["autoCreateTopicEnable"], found["maxMessageSize"]) == ("false", "65536")
        """
    )
    arguments = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error")
    pytester.runpytest_inprocess(*arguments).assert_outcomes(passed=1)


def test_the_example_with_a_filter_runs_as_it_stands(page, pytester, kourou_broker):
    lacking = missing()
    if lacking:
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    (block,) = re.findall(r"```python\n((?:(?!```).)*filter_servers.*?)```", page, re.DOTALL)
    pytester.makepyfile(block)
    arguments = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error")
    pytester.runpytest_inprocess(*arguments).assert_outcomes(passed=2)


def test_it_names_every_fixture_and_every_method(page):
    from kourou.testing import plugin
    from kourou.testing.chaos import Chaos
    from kourou.testing.cluster_clock import ClusterClock
    from kourou.testing.sent import Sent

    fixtures = [name for name in vars(plugin) if name.startswith("kourou_")]
    assert len(fixtures) == 10
    methods = [name for kind in (Chaos, ClusterClock, Sent) for name in public(kind)]
    assert len(methods) > 15
    missing = [name for name in (*fixtures, *methods) if f"`{name}" not in page]
    assert not missing


def public(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]
