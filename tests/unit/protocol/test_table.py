"""The request table is complete, consistent, and says who may do what."""

import re

import pytest

from kourou.errors import Code
from kourou.protocol.messages.reply import SendReplyMessage
from kourou.protocol.messages.sending import SendMessage
from kourou.protocol.request import Action, Answerer, Body, RequestSpec, Resource, Rule
from kourou.protocol.table import BROKER, PUBLISH, REQUESTS, _row, _table

ROCKETMQ_CODES = """
    10 310 320 36 37 39 324 325 326
    11 12 33 14 15 29 30 31 32 321
    34 35 38 40 41 42 46
    17 215 21 200 201 207 202 203 204 208 300 303 314 222 220 223 221 307 309 308 317 315
    25 26 28 306 316 329 323 328 305 43 45 50 51 52 53 301
    105 106 103 104 322 100 101 102 219 205 327 206 216 224 304 311 312 313 318 319
    302
"""


@pytest.mark.feature("F019")
def test_every_code_of_rocketmq_4_9_is_there():
    wanted = {int(code) for code in ROCKETMQ_CODES.split()}
    assert {code for code in REQUESTS if code < 30_000} == wanted


def test_our_own_codes_are_there_and_stay_off_tcp():
    ours = {code: spec for code, spec in REQUESTS.items() if code >= 30_000}
    assert set(ours) == {30_001, 30_010}
    assert not any(spec.remoting for spec in ours.values())


@pytest.mark.parametrize("spec", REQUESTS.values(), ids=lambda spec: spec.name)
def test_every_row_has_a_rule_an_answerer_and_a_name(spec: RequestSpec):
    assert isinstance(spec.rule, Rule)
    assert isinstance(spec.rule.resource, Resource)
    assert isinstance(spec.rule.action, Action)
    assert spec.answered_by <= set(Answerer)
    assert spec.answered_by
    assert re.fullmatch(r"[A-Z0-9_]+", spec.name)
    assert (
        spec.name.split("_V2")[0]
        .replace("_", "")
        .lower()
        .startswith(spec.header.__name__[:4].lower())
    )


def test_names_are_unique():
    names = [spec.name for spec in REQUESTS.values()]
    assert len(set(names)) == len(names)


def test_answers_are_known_codes_and_name_neither_success_nor_system_error():
    known = {int(code) for code in Code} | {209, 210, 211}
    for spec in REQUESTS.values():
        assert spec.answers <= known, spec.name
        assert not spec.answers & {Code.SUCCESS, Code.SYSTEM_ERROR}, spec.name


def test_all_spellings_of_a_send_share_one_header():
    assert {code for code, spec in REQUESTS.items() if spec.header is SendMessage} == {10, 310, 320}
    assert {code for code, spec in REQUESTS.items() if spec.header is SendReplyMessage} == {
        324,
        325,
    }
    assert {code for code, spec in REQUESTS.items() if spec.letters} == {310, 320, 325}


def test_what_goes_to_clients_is_guarded_by_notify_unless_it_is_forwarded():
    for spec in REQUESTS.values():
        if spec.answered_by == {Answerer.CLIENT}:
            assert spec.rule.action is Action.NOTIFY, spec.name
    assert {spec.code for spec in REQUESTS.values() if spec.oneway} == {39, 40, 220}


def test_only_the_stock_of_topics_and_groups_is_managed_by_manage():
    for code in (17, 215, 200, 207, 25, 50, 51, 53, 100, 102, 205, 216, 318):
        assert REQUESTS[code].rule.action is Action.MANAGE


def test_bodies_are_where_they_belong():
    assert REQUESTS[10].body is Body.MESSAGE
    assert REQUESTS[11].reply_body is Body.RECORDS
    assert REQUESTS[34].body is Body.JSON
    assert REQUESTS[25].body is Body.PROPERTIES
    assert REQUESTS[302].body is Body.SOURCE
    assert REQUESTS[30_001].body is Body.DRAFTS


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        REQUESTS[1] = REQUESTS[10]  # type: ignore[index]


def test_a_table_that_contradicts_itself_does_not_start():
    good = _row("SEND_MESSAGE", SendMessage, BROKER, PUBLISH)
    with pytest.raises(AssertionError, match="repeats"):
        _table([good, good])
    with pytest.raises(AssertionError, match="no allow rule"):
        _table([_row("SEND_MESSAGE", SendMessage, BROKER, Rule("x", Action.READ))])  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="answered by nobody"):
        _table([_row("SEND_MESSAGE", SendMessage, frozenset(), PUBLISH)])
    with pytest.raises(AssertionError, match="carrier"):
        _table([_row("SEND_MESSAGE", SendMessage, BROKER, PUBLISH, remoting=False)])
