"""Name servers are found in four ways, in this order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.session.discovery import discover, parse_addresses, zmq_endpoint
from kourou.errors import ConfigError

OPTIONS = {"rocketmq.namesrv.addr": "option:1"}
ENVIRONMENT = {"NAMESRV_ADDR": "environment:1"}


@pytest.mark.feature("F031", "F283")
def test_the_argument_wins_over_everything():
    found = discover(
        "argument:1", options=OPTIONS, environment=ENVIRONMENT, list_url="http://x/list"
    )
    assert (found.addresses, found.source) == (("argument:1",), "argument")


@pytest.mark.feature("F031")
def test_then_the_process_option_then_the_environment_then_the_list():
    found = discover(None, options=OPTIONS, environment=ENVIRONMENT, list_url="http://x/list")
    assert found.addresses == ("option:1",)
    found = discover(None, options={}, environment=ENVIRONMENT, list_url="http://x/list")
    assert found.addresses == ("environment:1",)
    found = discover("", options={}, environment={}, list_url="http://x/list")
    assert (found.addresses, found.list_url) == ((), "http://x/list")


@pytest.mark.feature("F031")
def test_our_own_option_name_comes_after_theirs():
    both = {"rocketmq.namesrv.addr": "theirs:1", "kourou.namesrv.addr": "ours:1"}
    assert discover(None, options=both, environment={}).addresses == ("theirs:1",)
    ours = {"kourou.namesrv.addr": "ours:1"}
    assert discover(None, options=ours, environment={}).addresses == ("ours:1",)


@pytest.mark.feature("F033")
def test_the_list_is_off_by_default():
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        discover(None, options={}, environment={})


def test_a_list_must_be_http():
    with pytest.raises(ConfigError, match="ftp"):
        discover(None, options={}, environment={}, list_url="ftp://x/list")


@pytest.mark.feature("F032")
def test_lists_are_separated_by_semicolons():
    assert parse_addresses(" a:9876; b:9876 ;;a:9876;") == ("a:9876", "b:9876")


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("127.0.0.1:9876", "tcp://127.0.0.1:19876"),
        ("mq.example", "tcp://mq.example:19876"),
        ("127.0.0.1:19876", "tcp://127.0.0.1:19876"),
        ("127.0.0.1:40123", "tcp://127.0.0.1:40123"),
        ("tcp://127.0.0.1:9876", "tcp://127.0.0.1:9876"),
        ("[::1]:9876", "tcp://[::1]:19876"),
    ],
)
def test_endpoints(address, endpoint):
    assert zmq_endpoint(address) == endpoint


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":9876",
        "a:b",
        "a:0",
        "a:65536",
        "a:99999999",
        "a b:1",
        "[::1",
        "[::1]x",
        "a:1/x",
        "tcp://",
    ],
)
def test_what_is_no_address(address):
    with pytest.raises(ConfigError):
        zmq_endpoint(address)


@pytest.mark.parametrize("argument", [9876, ("127.0.0.1", 9876), b"127.0.0.1:9876"])
def test_what_is_no_text_is_no_address(argument):
    with pytest.raises(ConfigError, match=r"not a name server address .pass a string"):
        discover(argument, options={}, environment={})


@given(st.text(max_size=30))
def test_any_text_gives_addresses_or_our_own_error(text):
    try:
        for address in parse_addresses(text):
            assert zmq_endpoint(address).startswith("tcp://")
    except ConfigError:
        pass
