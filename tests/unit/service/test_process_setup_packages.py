"""Which packages of an optional group are missing, by the metadata of the installed project."""

from __future__ import annotations

from importlib import metadata

import pytest

from kourou.errors import MissingPackages
from kourou.service import process_setup as packages
from kourou.service.process_setup import missing_packages, require_group

DECLARED = [
    "aiohttp>=3.11",
    "pandas<3,>=2.2; extra == 'spark'",
    "pyspark>=4.1; extra == 'spark'",
    'redis[hiredis]>=5.2; extra == "bench"',
    "zope.none>=1; python_version >= '3.11' and extra == 'bench'",
]


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: DECLARED)


def test_a_group_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_installed", lambda name: name == "pandas")
    assert missing_packages("spark") == ("pyspark",)
    assert missing_packages("bench") == ("redis", "zope.none")
    assert missing_packages("none") == ()
    with pytest.raises(MissingPackages, match=r"Spark needs packages: pyspark") as caught:
        require_group("spark", "Spark")
    assert caught.value.group == "spark"


def test_a_group_that_is_installed_is_no_error() -> None:
    require_group("spark", "Spark")
    assert missing_packages("bench") == ("zope.none",)


def test_without_metadata_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", none)
    assert missing_packages("spark") == ()
