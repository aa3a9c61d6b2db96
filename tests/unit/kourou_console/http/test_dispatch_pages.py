"""What comes before the API: pages, states, and whoever may not ask at all."""

from __future__ import annotations

import logging
import re

import pytest

from kourou.access.api_token import token_of
from kourou_rigs.console import ConsoleHere


def test_pages_are_served_with_a_strict_policy(console):
    answer = console.get("/")
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/v1/me", "/v1/nowhere", "/v1/me?x=1", "/session"])
def test_no_answer_of_the_api_is_kept_framed_or_told_to_other_sites(console, path):
    answer = console.get(path)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("name", ["token", "access_token", "password"])
def test_a_credential_in_an_address_is_refused_and_not_repeated(console, caplog, name):
    """An address is in histories, in logs of proxies, and in the headers of other requests."""
    token = token_of(bytes(range(32)))
    with caplog.at_level(logging.DEBUG):
        answer = console.get(f"/v1/me?{name}={token}")
    assert answer.status in (400, 401)
    assert token not in answer.text + str(answer.headers)
    assert token not in caplog.text


def test_a_page_that_the_browser_has_is_not_sent_again(console):
    first = console.get("/")
    again = console.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_the_reference_page_has_every_call_and_no_script(console):
    page = console.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    document = console.get("/openapi.json").json
    for path, methods in document["paths"].items():
        assert path in page.text
        for one in methods.values():
            assert f'id="{one["operationId"]}"' in page.text
    assert "<script" not in page.text
    assert " style=" not in page.text
    targets = set(re.findall(r'href="#([^"]+)"', page.text))
    assert targets <= set(re.findall(r' id="([^"]+)"', page.text)), (
        "links of the page lead somewhere"
    )
    assert console.get("/docs.css").status == 200


def test_every_problem_leads_into_the_reference_page(console):
    page = console.get("/docs").text
    for answer in (console.get("/v1/nowhere"), console.get("/v1/me?x=1"), console.post("/v1/me")):
        assert f'id="{answer.json["type"].partition("#")[2]}"' in page


@pytest.mark.parametrize(
    "path", ["/nothing.js", "/../config.py", "/%2e%2e/config.py", "//etc/passwd"]
)
def test_what_is_no_page(console, path):
    assert console.get(path).status == 404


@pytest.mark.parametrize("path", ["/", "/docs", "/healthz", "/readyz"])
def test_pages_are_only_read(console, path):
    refused = console.post(path, body=b"x")
    assert refused.status == 405
    assert refused.headers["allow"] == "GET, HEAD"


def test_a_foreign_page_gets_nothing_but_the_state(console):
    for path in ("/", "/v1/me", "/openapi.json"):
        assert console.get(path, headers={"Host": "evil.example"}).status == 403
        assert console.get(path, headers={"Origin": "http://evil.example"}).status == 403
    assert console.get("/healthz", headers={"Host": "console:8080"}).status == 200


def test_further_names_are_settings(cluster):
    with ConsoleHere(cluster, names="console;kourou.test") as console:
        assert console.get("/v1/me", headers={"Host": "kourou.test:8080"}).status == 200
