"""The plugin as pytest sees it: what it offers, what it costs who does not use it, when it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from kourou_filter_server.zygote_link import missing

pytest_plugins = ("pytester",)

HEAVY = ("zmq", "numpy", "sqlalchemy", "msgspec")
ARGUMENTS = ("-p", "no:cacheprovider", "-p", "no:asyncio")
"""The plugin is there by its entry point; pytest-asyncio is not needed."""


@pytest.fixture
def run(pytester, kourou_broker):
    """Run a test file in a session of its own inside this process.

    What such a session imports is forgotten with it; a broker of this one has imported it all.
    """

    def inner(text: str):
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess(*ARGUMENTS)

    return inner


def test_it_is_found_by_its_entry_point():
    (found,) = [one for one in entry_points(group="pytest11") if one.name == "kourou"]
    assert found.value == "kourou.testing.plugin"


def test_who_uses_no_fixture_of_it_imports_nothing_for_it(tmp_path):
    """Counted, not timed: what a run without the fixtures has imported of ours."""
    (tmp_path / "test_it.py").write_text(
        "import json, sys\n"
        "def test_it():\n"
        "    with open('modules.json', 'w') as file:\n"
        "        json.dump(sorted(sys.modules), file)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *ARGUMENTS],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    there = json.loads((tmp_path / "modules.json").read_text())
    ours = [name for name in there if name.split(".")[0].startswith("kourou")]
    assert ours == ["kourou", "kourou.testing", "kourou.testing.plugin", "kourou.version"]
    assert not set(HEAVY) & set(there)


def test_one_broker_serves_the_session(run):
    done = run(
        """
        seen = []

        def test_one(kourou_broker):
            seen.append(kourou_broker)

        def test_two(kourou_broker):
            assert seen == [kourou_broker]
        """
    )
    done.assert_outcomes(passed=2)


def test_topics_and_groups_are_a_tests_own(run):
    done = run(
        """
        import pytest

        topics, groups = set(), set()

        @pytest.mark.parametrize("number", range(3))
        def test_it(kourou_topic, kourou_client, number):
            topics.add(kourou_topic)
            groups.add(kourou_client._producing.producer_group)
            assert len(topics) == len(groups) == number + 1
            assert kourou_topic.startswith(f"test_it-{number}-")
        """
    )
    done.assert_outcomes(passed=3)


def test_faults_are_taken_back_after_the_test_that_ordered_them(run):
    done = run(
        """
        def test_one(kourou_chaos, kourou_broker):
            kourou_chaos.drop_requests(times=None)
            kourou_chaos.fill_disk()
            kourou_chaos.kill()

        def test_two(kourou_broker, kourou_topic, kourou_client):
            assert kourou_broker.is_up("broker-a")
            assert kourou_client.send(kourou_topic, b"x").status == "SEND_OK"
        """
    )
    done.assert_outcomes(passed=2)


def test_a_cluster_of_a_tests_own_ends_with_it(run):
    done = run(
        """
        import pytest
        from kourou.errors import Rejected

        left = []

        def test_one(kourou_cluster):
            left.append(kourou_cluster())
            assert left[0].brokers == ["broker-a", "broker-b"]

        def test_two():
            with pytest.raises(Rejected, match="not open"):
                left[0].sent()
        """
    )
    done.assert_outcomes(passed=2)


@pytest.mark.parametrize("question", ["one(topic)", "none(topic)", "all(topic, 2)"])
def test_a_question_that_fails_is_shown_at_the_line_that_asked(run, question):
    """And nothing of the way to the cluster and back; what the topic has stands below it."""
    question = question.replace(")", ", within_s=0)") if question != "none(topic)" else question
    sends = "kourou_client.send(topic, b'a')" if question == "none(topic)" else "pass"
    result = run(
        f"""
        def test_it(kourou_topic, kourou_client, kourou_sent):
            topic = kourou_topic
            {sends}
            kourou_sent.{question}
        """
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert f">       kourou_sent.{question}" in text
    assert "the topic has" in text
    for inner in ("sent.py", "cluster_thread.py", "_base.py"):
        assert inner not in text.replace("test_sent.py", "")


# -- every example of the page about the plugin is run as it stands there --------------------------


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
    pytester.runpytest_inprocess(*ARGUMENTS, "-W", "error").assert_outcomes(passed=wanted)


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
    pytester.runpytest_inprocess(*ARGUMENTS, "-W", "error").assert_outcomes(passed=1)


def test_the_example_with_a_filter_runs_as_it_stands(page, pytester, kourou_broker):
    lacking = missing()
    if lacking:
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    (block,) = re.findall(r"```python\n((?:(?!```).)*filter_servers.*?)```", page, re.DOTALL)
    pytester.makepyfile(block)
    pytester.runpytest_inprocess(*ARGUMENTS, "-W", "error").assert_outcomes(passed=2)


def test_it_names_every_fixture_and_every_method(page):
    from kourou.testing import plugin
    from kourou.testing.chaos import Chaos
    from kourou.testing.cluster_thread import ClusterClock
    from kourou.testing.sent import Sent

    fixtures = [name for name in vars(plugin) if name.startswith("kourou_")]
    assert len(fixtures) == 10
    methods = [name for kind in (Chaos, ClusterClock, Sent) for name in public(kind)]
    assert len(methods) > 15
    missing = [name for name in (*fixtures, *methods) if f"`{name}" not in page]
    assert not missing


def public(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]
