"""Subjects of certificates: one text for each, however it is written, and no two alike."""

from __future__ import annotations

import random

import pytest

from kourou.access.subject import parse_subject, subject_text
from kourou.errors import BadRequest
from kourou.model.limits import SUBJECT_LENGTH_MAX

TILL = "CN=till,OU=Shop,O=Example,C=DE"


def of(*names: tuple[str, str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """A subject as ssl returns it, one name in each group."""
    return tuple((name,) for name in names)


@pytest.mark.parametrize(
    ("rdns", "text"),
    [
        (
            of(
                ("countryName", "DE"),
                ("organizationName", "Example"),
                ("organizationalUnitName", "Shop"),
                ("commonName", "till"),
            ),
            TILL,
        ),
        ((), ""),
        (of(("commonName", "")), "CN="),
        (
            of(("emailAddress", "a@b.example"), ("1.2.3.4", "x")),
            "1.2.3.4=x,emailAddress=a@b.example",
        ),
        (((("userId", "7"), ("commonName", "till")),), "CN=till+UID=7"),
        (of(("commonName", 'a, b+c="d"; <e> \\ f')), r"CN=a\, b\+c=\"d\"\; \<e\> \\ f"),
        (of(("commonName", " #x ")), r"CN=\ #x\ "),
        (of(("commonName", "#x")), r"CN=\#x"),
        (of(("commonName", "a\0\n")), r"CN=a\00\0A"),
        (of(("commonName", "Käthe")), "CN=Käthe"),
    ],
)
def test_a_subject_is_text_as_in_the_rfc(rdns, text: str) -> None:
    assert subject_text(rdns) == text
    if text:
        assert parse_subject(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "cn=till,ou=Shop,o=Example,c=DE",
        "CN=till, OU = Shop ,O=Example,  C=DE",
        "commonName=till,organizationalUnitName=Shop,organizationName=Example,countryName=DE",
        r"CN=t\69ll,OU=Shop,O=Example,C=DE",
        "subject=CN=till,OU=Shop,O=Example,C=DE",
    ],
)
def test_it_may_be_written_in_several_ways(text: str) -> None:
    assert parse_subject(text) == TILL


@pytest.mark.parametrize(
    "text",
    [
        "till",
        "",
        "CN=till,",
        ",CN=till",
        "CN=till,,O=Example",
        "=till",
        "CN=a\\",
        "CN=a;O=b",
        'CN="till"',
        "CN=#0C0474696C6C",
        r"CN=\FF",
        "CN=a\nb",
        "CN=" + "x" * SUBJECT_LENGTH_MAX,
    ],
)
def test_what_is_no_subject_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not the subject of a certificate"):
        parse_subject(text)


@pytest.mark.parametrize(
    "other",
    [
        "CN=Till,OU=Shop,O=Example,C=DE",
        "CN=till,OU=Shop,O=EXAMPLE,C=DE",
        r"CN=till\ ,OU=Shop,O=Example,C=DE",
        r"CN=till\,OU=Shop,O=Example,C=DE",
        "OU=Shop,CN=till,O=Example,C=DE",
    ],
)
def test_values_are_compared_as_they_are(other: str) -> None:
    """Two owners may have names that differ in the case only."""
    assert parse_subject(other) != TILL


def test_a_comma_within_a_value_begins_no_other_part() -> None:
    """An authority that gives its owner any organization must not give another name by it."""
    crafted = r"CN=evil,O=x\,CN=till"
    assert parse_subject(crafted) == crafted
    named = of(("organizationName", "x,CN=till"), ("commonName", "evil"))
    assert subject_text(named) == crafted
    parts = of(("commonName", "till"), ("organizationName", "x"), ("commonName", "evil"))
    assert subject_text(parts) != crafted


@pytest.mark.parametrize("seed", range(3))
def test_texts_of_different_subjects_differ(seed: int) -> None:
    """Nobody gets the text of another one by special characters in a name."""
    chance = random.Random(seed)
    names = ("commonName", "organizationName", "emailAddress")
    found = {}
    for _ in range(3_000):
        rdns = tuple(
            tuple(
                (chance.choice(names), "".join(chance.choices('a,+=\\ #"', k=chance.randrange(4))))
                for _ in range(chance.choice((1, 1, 2)))
            )
            for _ in range(chance.randrange(1, 3))
        )
        text = subject_text(rdns)
        groups = tuple(tuple(sorted(rdn)) for rdn in rdns)
        assert found.setdefault(text, groups) == groups
        assert parse_subject(text) == text
