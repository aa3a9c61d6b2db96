"""Name server discovery: four sources, of which the first that is set is used.

    1. the argument                      Client("10.0.0.1:9876;10.0.0.2:9876")
    2. a process option                  python -X rocketmq.namesrv.addr=10.0.0.1:9876 app.py
                                         (or `kourou.namesrv.addr`; Client(options=...) overrides
                                         -X)
    3. the environment                   NAMESRV_ADDR=10.0.0.1:9876
    4. a list on an HTTP server          fetched every two minutes; off unless a URL is set, because
                                         a default URL would let third parties redirect messages

Addresses are separated by `;`. Users configure RocketMQ's addresses, so a port below 10,000 is a
remoting port, and ZeroMQ connects to that port plus 10,000 (9876 becomes 19876). A port from 10,000
up, as in routes and in tests, is used unchanged. `tcp://host:port` is always used unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kourou.errors import ConfigError, Unavailable
from kourou.model.limits import NAME_SERVERS_MAX, PORT_MAX
from kourou.model.ports import NAMESRV_PORT, ZMQ_PORT_SHIFT

OPTION_NAMES = ("rocketmq.namesrv.addr", "kourou.namesrv.addr")
LIST_URL_OPTION = "kourou.namesrv.list.url"
ENVIRONMENT_NAME = "NAMESRV_ADDR"
LIST_REFRESH_MS = 120_000


class NoNameServer(ConfigError):
    """No name server address is configured."""


class NameServersDown(Unavailable):
    """No name server is listening at the configured addresses."""


@dataclass(frozen=True, slots=True)
class NameServers:
    """The discovered addresses as written, or the URL of a list; and the source."""

    addresses: tuple[str, ...]
    source: str
    list_url: str = ""


def discover(
    argument: str | None,
    *,
    options: Mapping[str, str],
    environment: Mapping[str, str],
    list_url: str = "",
) -> NameServers:
    """Return the name servers of the first source that is set. Raises ConfigError if none is."""
    if argument:
        return NameServers(parse_addresses(argument), "argument")
    for name in OPTION_NAMES:
        if options.get(name):
            return NameServers(parse_addresses(options[name]), f"option {name}")
    if environment.get(ENVIRONMENT_NAME):
        return NameServers(parse_addresses(environment[ENVIRONMENT_NAME]), ENVIRONMENT_NAME)
    url = list_url or options.get(LIST_URL_OPTION, "")
    if url:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not an http or https address (name server list)")
        return NameServers((), "list", url)
    raise NoNameServer(
        "no name server address is set",
        hint=f"pass one to Client(), or set the option {OPTION_NAMES[0]} or the "
        f"environment variable {ENVIRONMENT_NAME}",
    )


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of a `;` list in order, each checked, without repetitions."""
    if not isinstance(text, str):
        raise ConfigError(
            f"{text!r} is not a name server address", hint='pass a string: "127.0.0.1:9876"'
        )
    found: dict[str, None] = {}
    for part in text.split(";"):
        address = part.strip()
        if address:
            zmq_endpoint(address)
            found[address] = None
    if not found:
        raise ConfigError(
            f"{text!r} does not contain an address", hint="use the form host:port;host:port"
        )
    if len(found) > NAME_SERVERS_MAX:
        raise ConfigError(
            f"{len(found)} name server addresses are given; at most {NAME_SERVERS_MAX} are allowed"
        )
    return tuple(found)


def zmq_endpoint(address: str) -> str:
    """Return the ZeroMQ endpoint `tcp://host:port` of an address as written by users and routes."""
    literal = address.startswith("tcp://")
    rest = address.removeprefix("tcp://")
    host, port_text = _split(rest, address)
    port = _port(port_text, address) if port_text else NAMESRV_PORT
    if not literal and port < ZMQ_PORT_SHIFT:
        port += ZMQ_PORT_SHIFT
    return f"tcp://{host}:{port}"


def host_of(address: str) -> tuple[str, int]:
    """Return host, without brackets, and port of an address as written in routes."""
    host, port_text = _split(address.removeprefix("tcp://"), address)
    return host.strip("[]"), _port(port_text, address)


def store_host_of(address: str) -> tuple[str, int]:
    """Return the host and port that a broker writes into records and message IDs.

    `address` is the ZeroMQ address in the broker's route. The result is the remoting address; its
    port is lower by the offset that `zmq_endpoint` adds.
    """
    host, port = host_of(address)
    return host, port - ZMQ_PORT_SHIFT if port > ZMQ_PORT_SHIFT else port


def _split(rest: str, address: str) -> tuple[str, str]:
    if rest.startswith("["):
        host, bracket, tail = rest.partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise _bad(address)
        host, port_text = host + "]", tail[1:]
    else:
        host, _, port_text = rest.partition(":")
    if not host or any(character.isspace() or character in "/;" for character in rest):
        raise _bad(address)
    return host, port_text


def _port(text: str, address: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 5:
        raise _bad(address)
    port = int(text)
    if not 0 < port <= PORT_MAX:
        raise _bad(address)
    return port


def _bad(address: str) -> ConfigError:
    return ConfigError(
        f"{address!r} is not an address", hint="use the form host:port, or [ipv6]:port"
    )
