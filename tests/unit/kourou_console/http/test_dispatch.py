"""A request of the API: routed, counted, refused in words."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated

import msgspec
import pytest

from kourou.access.api_token import token_of
from kourou.errors import Corrupt, GroupNotFound, Throttled, TimedOut, TopicNotFound, Unavailable
from kourou.model.limits import GATEWAY_STREAMS_MAX, GATEWAY_USER_STREAMS_MAX
from kourou.service.access_metrics import open_family
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, ServiceKind
from kourou.telemetry.metrics import Family, expose
from kourou_console.http import dispatch
from kourou_console.http.call import Answered, Content, RequestContext
from kourou_console.http.dispatch import Dispatch
from kourou_console.http.request_metrics import LAG_INTERVAL_S, LoopLag, RequestMetrics
from kourou_console.http.responses import Busy, HttpError
from kourou_console.operation import BodyKind, NoParameters, Operation
from kourou_rigs.console import ConsoleHere


class Asked(msgspec.Struct, frozen=True):
    name: str
    number: Annotated[int, msgspec.Meta(ge=0, le=9)] = 3
    tags: tuple[str, ...] = ()
    flag: bool = False


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: int
    note: str = ""


async def echo(gateway: object, parameters: Asked) -> Asked:
    return parameters


async def take(
    gateway: object, parameters: NoParameters, body: Body, call: RequestContext
) -> dict[str, str]:
    return {
        "count": str(body.count),
        "agent": call.header("user-agent") or "",
        "who": call.caller.name,
    }


async def other(gateway: object, parameters: NoParameters) -> Answered:
    return Answered(Content(b"<b>", "text/html", "größe.html"), 203, {"X-More": "yes"})


async def nothing(gateway: object, parameters: NoParameters) -> None:
    return None


ERRORS = {
    "topic": (TopicNotFound("no such topic"), 404, "TOPIC_NOT_EXIST"),
    "hinted": (TopicNotFound("no such topic", hint="its own"), 404, "TOPIC_NOT_EXIST"),
    "group": (GroupNotFound("no such group"), 404, "SUBSCRIPTION_GROUP_NOT_EXIST"),
    "throttled": (Throttled("too much", retry_after_ms=2_500), 429, "SYSTEM_BUSY"),
    "later": (Unavailable("nobody leads"), 503, "SERVICE_NOT_AVAILABLE"),
    "perhaps": (TimedOut("no answer"), 504, "OUTCOME_UNKNOWN"),
    "corrupt": (Corrupt("bad sum"), 502, "MESSAGE_CORRUPT"),
    "refused": (HttpError(HTTPStatus.IM_A_TEAPOT, "a teapot"), 418, "SYSTEM_ERROR"),
    "bug": (KeyError("secret"), 500, "SYSTEM_ERROR"),
}


class Named(msgspec.Struct, frozen=True):
    kind: str


async def fail(gateway: object, parameters: Named) -> None:
    raise ERRORS[parameters.kind][0]


OPERATIONS = (
    Operation("GET", "/v1/echo/{name}", "echo", "E.", "T", echo, Asked, parameters=Asked),
    Operation(
        "POST", "/v1/take", "take", "T.", "T", take, dict[str, str],
        body=Body, body_kind=BodyKind.JSON, call=True,
    ),
    Operation("GET", "/v1/other", "other", "O.", "T", other, Content),
    Operation("GET", "/v1/nothing", "nothing", "N.", "T", nothing, None, status=204),
    Operation("GET", "/v1/fail/{kind}", "fail", "F.", "T", fail, None, parameters=Named),
)  # fmt: skip


@pytest.fixture
def api(console) -> Iterator[ConsoleHere]:
    """The console with these operations instead of its own."""
    with console.serving(*OPERATIONS):
        yield console


@pytest.mark.fault
def test_streams_of_one_user_leave_room_for_those_of_others(console) -> None:
    metrics = RequestMetrics()
    placed = Dispatch((), console.gateway, metrics)
    for _ in range(GATEWAY_USER_STREAMS_MAX):
        placed._enter("till", waits=True)
    with pytest.raises(Busy, match="user till has 192 waiting requests and streams"):
        placed._enter("till", waits=True)
    placed._enter("till", waits=False)
    placed._enter("billing", waits=True)
    placed._leave("till", waits=True)
    placed._enter("till", waits=True)
    while metrics.streams < GATEWAY_STREAMS_MAX:
        placed._enter("", waits=True)
    with pytest.raises(Busy, match="256"):
        placed._enter("", waits=True)


def test_path_and_query_become_values(api):
    answer = api.get(
        "/v1/echo/%25RETRY%25gr%C3%BCn", query={"number": 7, "tags": ["a", "b"], "flag": "true"}
    )
    assert answer.json == {"name": "%RETRY%grün", "number": 7, "tags": ["a", "b"], "flag": True}
    assert api.get("/v1/echo/a%2Fb/").json["name"] == "a/b"


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/echo/x?numbr=7", "numbr"),
        ("/v1/echo/x?number=ten", "number"),
        ("/v1/echo/x?number=10", "number"),
        ("/v1/echo/x?number=1&number=2", "number"),
        ("/v1/echo/x?flag=maybe", "flag"),
        ("/v1/echo/x?name=y", "name"),
        ("/v1/echo/%ff", "%ff"),
        ("/v1/echo/x?tags=%ff", "query"),
        ("/v1/echo/x?" + "&".join(f"tags={n}" for n in range(200)), "query"),
    ],
)
def test_what_is_wrong_is_named(api, path, named):
    answer = api.get(path)
    assert answer.status == 400
    assert named in answer.json["detail"]


def test_what_is_not_there(api):
    assert api.get("/v1/nowhere").status == 404
    assert api.get("/v1").status == 404
    refused = api.delete("/v1/take")
    assert refused.status == 405
    assert refused.headers["allow"] == "POST"


def test_a_json_body_comes_with_the_call(api):
    answer = api.post("/v1/take", json={"count": 2}, headers={"User-Agent": "test"})
    assert answer.json == {"count": "2", "agent": "test", "who": "anybody"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"{}", "count"),
        (b'{"count":"2"}', "count"),
        (b'{"count":2,"cnt":3}', "cnt"),
        (b"[]", "array"),
    ],
)
def test_what_is_wrong_in_json_is_named(api, body, named):
    answer = api.post("/v1/take", body=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400
    assert named in answer.json["detail"]


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("topic", "check the name, or create the topic: PUT /v1/topics/NAME"),
        ("group", "check the name; a group is created by its first consumer, or by PUT "
         "/v1/groups/NAME"),
        ("hinted", "its own"),
    ],
)  # fmt: skip
def test_of_an_unknown_name_it_says_what_to_do(api, kind, hint):
    assert api.get(f"/v1/fail/{kind}").json["hint"] == hint


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_called_json_is_refused(api, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    assert api.post("/v1/take", body=b'{"count":2}', headers=headers).status == 415


def test_other_answers_than_json(api):
    answer = api.get("/v1/other")
    assert (answer.status, answer.body) == (203, b"<b>")
    assert answer.headers["x-more"] == "yes"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"] == (
        "attachment; filename=\"gr__e.html\"; filename*=UTF-8''gr%C3%B6%C3%9Fe.html"
    )
    assert api.get("/v1/nothing").status == 204
    head = api.request("HEAD", "/v1/echo/x")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_has_its_status_and_its_code(api, kind, caplog):
    error, status, code = ERRORS[kind]
    answer = api.get(f"/v1/fail/{kind}")
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    result = answer.json
    assert (result["status"], result["code_name"]) == (status, code)
    assert result["type"].startswith("/docs#")
    assert result["retryable"] == getattr(error, "retryable", False)
    assert ("retry-after" in answer.headers) == isinstance(error, Unavailable)
    assert "secret" not in answer.text, "a bug is only logged"
    assert ("secret" in caplog.text) == (kind == "bug")


def test_retry_after_is_rounded_up(api):
    assert api.get("/v1/fail/throttled").headers["retry-after"] == "3"


def test_too_many_requests_at_once(console, monkeypatch):
    monkeypatch.setattr(dispatch, "GATEWAY_REQUESTS_MAX", 1)
    may_end = threading.Event()

    async def wait(gateway: object, parameters: NoParameters) -> None:
        await asyncio.to_thread(may_end.wait)

    slow = Operation("GET", "/v1/slow", "slow", "S.", "S", wait, None, status=204)
    with console.serving(slow):
        first = threading.Thread(target=console.get, args=("/v1/slow",))
        first.start()
        while not console.service._request_metrics.under_way:
            console.run(asyncio.sleep(0))
        refused = console.get("/v1/slow")
        may_end.set()
        first.join()
        assert refused.status == 503
        assert refused.json["retryable"]
        assert console.get("/v1/slow").status == 204


# -- what the console shows is what the table of metrics says it shows -----------------------------


BASE = {"node_type": "console"}


def shown(families: list[Family]) -> dict[str, frozenset[str]]:
    return {
        one.name: frozenset(one.samples[0][0]) if one.samples else frozenset() for one in families
    }


def test_the_tables_metrics_are_shown_and_no_others(console):
    console.get("/v1/me")
    console.get("/v1/nowhere")
    service = console.service
    families = [
        *service._request_metrics.families(BASE),
        *service.gateway.families(BASE),
        open_family(BASE, service.open_because()),
    ]
    found = shown(families)
    listed = {
        name: spec
        for name, spec in METRICS.items()
        if ServiceKind.CONSOLE in spec.services and not spec.when
    }
    assert set(found) == set(listed)
    for name, labels in found.items():
        if labels:
            assert labels == {*listed[name].labels, *BASE_LABELS[ServiceKind.CONSOLE]}
    assert b"kourou_gateway_requests_total" in expose(families)


def test_a_request_is_counted_by_operation_and_status():
    metrics = RequestMetrics()
    metrics.count("send_message", 200, 5_000_000)
    metrics.count("send_message", 503, 1_000)
    metrics.refused["access"] += 1
    page = expose(metrics.families(BASE)).decode()
    assert 'requests_total{node_type="console",operation="send_message",status="503"} 1.0' in page
    assert 'latency_bucket{le="5",node_type="console",operation="send_message"} 2.0' in page
    assert 'refused_total{node_type="console",reason="access"} 1.0' in page


async def test_a_loop_that_is_held_up_is_late():
    """By a clock of the test: the timer that is due at 10 ms is called at 60 ms."""
    times = iter([0.0, LAG_INTERVAL_S + 0.05])
    lag = LoopLag(lambda: next(times, 1.0))
    lag.start()
    while not dict(lag.lags_ms.buckets())["+Inf"]:  # noqa: ASYNC110 - a timer sets no event
        await asyncio.sleep(0)
    lag.stop()
    counts = dict(lag.lags_ms.buckets())
    assert (counts["30"], counts["70"], counts["+Inf"]) == (0, 1, 1)


# -- what comes before the API: pages, states, and whoever may not ask at all ----------------------


def test_pages_are_served_with_a_strict_policy(console):
    answer = console.get("/")
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
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
