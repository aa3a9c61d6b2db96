"""The description of the HTTP API is equal to its golden copy, tests/golden/openapi.json.

A change of the API is intended or a mistake; the diff of the copy shows it to the reviewer. After
an intended change: `pytest tests/golden/test_openapi.py --rewrite`.

The copy describes the API with tokens and has no version, which changes with each release.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from tests.golden.conftest import GoldenCopies

from kourou_console.http.openapi import described
from kourou_console.operations import OPERATIONS

FILE = Path(__file__).parent / "openapi.json"


def test_the_description_equals_its_copy(golden_copies: GoldenCopies) -> None:
    document = json.loads(msgspec.json.encode(described(OPERATIONS, tokens=True)))
    assert document["info"].pop("version")
    golden_copies.check(FILE, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
