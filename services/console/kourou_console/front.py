"""The entry point of all requests: checks host and caller, then selects API or page.

/v1/…                 the API
/openapi.json /docs   its description, for programs and for people
/healthz /readyz      for process supervision; they need no token
everything else       the web console's files; they need no token, the API does
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from aiohttp import web

from kourou.errors import KourouError
from kourou_console.access import Access
from kourou_console.answers import ALWAYS, written
from kourou_console.dispatch import Dispatch
from kourou_console.figures import Figures
from kourou_console.pages import Page, Pages, require_get
from kourou_console.problems import status_of

PAGE = "page"
"""The name in metrics of requests that are not API calls."""


class Front:
    """The handler of every request. `own` creates generated pages by their paths on demand.

    `ready` returns "" or the reason why the service is not ready.
    """

    def __init__(
        self,
        access: Access,
        dispatch: Dispatch,
        pages: Pages,
        own: Mapping[str, Callable[[], Page]],
        figures: Figures,
        ready: Callable[[], str],
    ) -> None:
        self._access = access
        self._dispatch = dispatch
        self._pages = pages
        self._own = own
        self._figures = figures
        self._ready = ready

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request."""
        path = request.rel_url.raw_path
        began_ns = time.perf_counter_ns()
        try:
            if path == "/v1" or path.startswith("/v1/"):
                caller = self._access.caller(request.method, request.headers)
                return await self._dispatch.answer(request, caller)
            answer = self._page(request, path)
        except KourouError as error:
            if status_of(error) in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
                self._figures.refused["access"] += 1
            answer = written(error)
        self._figures.answered(PAGE, answer.status, time.perf_counter_ns() - began_ns)
        return answer

    def _page(self, request: web.BaseRequest, path: str) -> web.Response:
        if path in ("/healthz", "/readyz"):
            require_get(request)
            return _state("" if path == "/healthz" else self._ready())
        self._access.check_page(request.method, request.headers)
        own = self._own.get(path)
        if own is not None:
            require_get(request)
            return own().answer(request)
        return self._pages.answer(request)


def _state(trouble: str) -> web.Response:
    headers = {**ALWAYS, "Content-Type": "text/plain; charset=utf-8"}
    if not trouble:
        return web.Response(body=b"ok\n", headers=headers)
    return web.Response(
        status=HTTPStatus.SERVICE_UNAVAILABLE, body=trouble.encode() + b"\n", headers=headers
    )
