"""What a broker does, step by step: each script in tests/golden/transcripts with its effects.

A script is a person's, the indented lines are the broker's. To write them again:
`pytest tests/golden/test_transcripts.py --rewrite`. Read the difference before you keep it.
kourou_rigs.transcript explains the notation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.golden.conftest import GoldenCopies

from kourou_rigs.transcript import performed

FOLDER = Path(__file__).parent / "transcripts"
Compare = Callable[[str], None]


@pytest.fixture
def compare(golden_copies: GoldenCopies) -> Compare:
    """Compares what the script of a subject does with its transcript."""

    def run(subject: str) -> None:
        path = FOLDER / f"{subject}.txt"
        golden_copies.check(path, performed(path.read_text(encoding="utf-8")))

    return run


@pytest.mark.feature("F010", "F011", "F045", "F048", "F049", "F051", "F052", "F053", "F331", "F362")
def test_topics(compare: Compare) -> None:
    compare("topics")


@pytest.mark.feature("F011", "F047", "F063", "F094", "F164", "F167", "F172", "F176", "F260")
def test_sends(compare: Compare) -> None:
    compare("sends")


def test_replies(compare: Compare) -> None:
    compare("replies")


@pytest.mark.feature("F003", "F012", "F046", "F048", "F049", "F073", "F094", "F186", "F187", "F188")
@pytest.mark.feature("F189", "F234", "F235", "F236", "F237", "F241", "F243", "F273", "F274", "F332")
@pytest.mark.feature("F352")
def test_pulls(compare: Compare) -> None:
    compare("pulls")


@pytest.mark.feature("F071", "F191", "F194", "F195", "F267", "F268", "F332")
def test_offsets(compare: Compare) -> None:
    compare("offsets")


@pytest.mark.feature("F013", "F094", "F233", "F260", "F261", "F263")
def test_queries(compare: Compare) -> None:
    compare("queries")


@pytest.mark.feature("F007", "F014", "F094", "F202", "F215", "F332", "F363")
def test_clients(compare: Compare) -> None:
    compare("clients")


@pytest.mark.feature("F213", "F217", "F218", "F219", "F221")
def test_retries(compare: Compare) -> None:
    compare("retries")


@pytest.mark.feature("F061", "F247", "F248", "F249", "F250")
def test_delays(compare: Compare) -> None:
    compare("delays")


@pytest.mark.feature("F006", "F252", "F253", "F254", "F256", "F257", "F333")
def test_transactions(compare: Compare) -> None:
    compare("transactions")


@pytest.mark.feature("F239", "F240", "F243")
def test_filters(compare: Compare) -> None:
    compare("filters")


@pytest.mark.feature("F120", "F121", "F123", "F125", "F126", "F341", "F351")
def test_retention(compare: Compare) -> None:
    compare("retention")


@pytest.mark.feature("F358", "F364")
def test_settings(compare: Compare) -> None:
    compare("settings")


def test_users(compare: Compare) -> None:
    compare("users")


def test_tokens(compare: Compare) -> None:
    compare("tokens")


def test_accounts(compare: Compare) -> None:
    compare("accounts")


def test_undo_rights(compare: Compare) -> None:
    compare("undo_rights")


def test_rights(compare: Compare) -> None:
    compare("rights")


def test_doors(compare: Compare) -> None:
    compare("doors")


def test_quotas(compare: Compare) -> None:
    compare("quotas")


def test_every_transcript_has_its_test() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in FOLDER.iterdir()} <= tests
