"""Which requests are answered in this version, as the handlers themselves say.

Lives here: asking the minds of a broker and a filter server, and a client's session. A name server
answers every request that the table gives it; its unit test proves that.
May not live here: the table of requests (kourou.protocol.table).
"""

from __future__ import annotations

import ast
import inspect
from functools import cache

from kourou.client.session import Session
from kourou.protocol.request import Answerer, RequestSpec
from kourou.testing.engine import Engine
from kourou_filter_server.core import FilterCore


def answered_now(spec: RequestSpec) -> set[Answerer]:
    """Those among its answerers that answer it in this version."""
    return {who for who in spec.answered_by if _answers(who, spec)}


def _answers(who: Answerer, spec: RequestSpec) -> bool:
    match who:
        case Answerer.NAMESRV:
            return True
        case Answerer.BROKER:
            return _engine().core.handles(spec.header)
        case Answerer.CLIENT:
            return spec.header.__name__ in _looked_for(Session)
        case Answerer.FILTER_SERVER:
            return FilterCore.handles(spec.header)


@cache
def _engine() -> Engine:
    return Engine()


def _looked_for(kind: type) -> set[str]:
    """The names in `isinstance(…, NAME)` of a class."""
    return {
        node.args[1].id
        for node in ast.walk(ast.parse(inspect.getsource(kind)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and isinstance(node.args[1], ast.Name)
    }
