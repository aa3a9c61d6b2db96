"""The requests that this version handles, according to the dispatch tables of the services."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import kourou.client
from kourou.broker.raft.peer_links import MESSAGES
from kourou.engine.core import BrokerCore
from kourou.engine.roles.quorum import QuorumFollowerRole, QuorumLeaderRole
from kourou.protocol.messages.namesrv import DeleteKvConfig, PutKvConfig
from kourou.protocol.request import Answerer, RequestSpec
from kourou.settings.registry import SettingsRegistry
from kourou_filter_server.core import FilterCore
from kourou_namesrv.config import NamesrvSettings
from kourou_namesrv.core import NamesrvCore
from kourou_namesrv.key_values import KeyValues
from kourou_rigs.engine import Engine
from kourou_rigs.pair import Pair
from kourou_rigs.quorum import GivenQuorum


def answered_now(spec: RequestSpec) -> set[Answerer]:
    """The services that handle a request in this version."""
    return {who for who in spec.answered_by if _answers(who, spec)}


def _answers(who: Answerer, spec: RequestSpec) -> bool:
    match who:
        case Answerer.NAMESRV:
            # Changes of key-value settings are not in the table, because they wait for the
            # database.
            waiting = (PutKvConfig, DeleteKvConfig)
            handlers = _name_server()._handlers
            return spec.header in handlers or spec.header in waiting
        case Answerer.BROKER:
            return any(core.handles(spec.header) for core in _brokers())
        case Answerer.CLIENT:
            return spec.header.__name__ in _registered()
        case Answerer.FILTER_SERVER:
            return FilterCore.handles(spec.header)
        case Answerer.MEMBER:
            return spec.header in MESSAGES or any(core.handles(spec.header) for core in _brokers())


@cache
def _name_server() -> NamesrvCore:
    return NamesrvCore(NamesrvSettings(), KeyValues(), SettingsRegistry([]), "")


@cache
def _brokers() -> tuple[BrokerCore, ...]:
    """A standalone broker, both of a static pair, and both roles in a Raft group."""
    pair = Pair()
    elected = GivenQuorum(leader="n0")
    engines = (
        Engine(),
        pair.leader,
        pair.follower,
        Engine(role=QuorumLeaderRole(1, elected)),
        Engine(role=QuorumFollowerRole(GivenQuorum(leader="n1"))),
    )
    return tuple(engine.core for engine in engines)


@cache
def _registered() -> frozenset[str]:
    """The names in `answering.on(NAME, …)` in all modules of the client."""
    return frozenset(name for module in _client_modules() for name in _registrations(module))


def _client_modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(kourou.client.__path__, "kourou.client."):
        yield inspect.getsource(import_module(found.name))


def _registrations(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="on", value=owner), args=[ast.Name(id=name), *_]
            ) if "answering" in ast.unparse(owner):
                yield name
