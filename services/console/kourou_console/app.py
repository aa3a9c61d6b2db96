"""The console process: connects the gateway, its components, and the listeners.

It stores nothing on disk: all information is requested from the cluster. What it keeps for its
callers (leases, jobs, samples) is lost when it ends, and the cluster's own rules recover from that.
It starts even if no name server replies; then /readyz reports this, and calls return 503.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kourou.authorization.audit import OwnRefusals
from kourou.client.client import Client
from kourou.client.session.io_thread import background
from kourou.client.settings.client_settings import ClientSettings, ProducerSettings
from kourou.clock import Clock, SystemClock
from kourou.errors import ConfigError, KourouError, Rejected
from kourou.model.limits import PASSWORD_LENGTH_MIN
from kourou.service.access_metrics import open_family
from kourou.service.admin_http import AdminHttp, AdminPages, ClearTextWarning
from kourou.service.entry import run_from_arguments
from kourou.service.http_listener import HttpListener
from kourou.settings.sources import render
from kourou.telemetry.metrics import expose
from kourou.telemetry.tracing_setup import start_export, tracing_options
from kourou_console.config import ConsoleSettings, SignInMode
from kourou_console.gateway import Gateway, UserGateways
from kourou_console.http.access import AccessControl, Tokens
from kourou_console.http.connections import GatewayServer, gateway_server
from kourou_console.http.dispatch import Dispatch, HttpHandler
from kourou_console.http.openapi import description_pages
from kourou_console.http.pages import Pages
from kourou_console.http.request_metrics import RequestMetrics, RequestSpans
from kourou_console.http.responses import Busy, error_response
from kourou_console.http.sessions import Sessions
from kourou_console.http.sign_in import SignIns
from kourou_console.operations import OPERATIONS, STARTED

if TYPE_CHECKING:
    from kourou.client.admin.users import UsersApi

_log = logging.getLogger("kourou.console")

SERVICE = "kourou-console"
DRAIN_S = 5.0
CLUSTER_WAIT_S = 5.0
BACKLOG = 256
"""The maximum number of connections accepted in one iteration of the loop, some 20 ms of work."""

LOOK_S = 0.01

PERIOD_S = 5.0
"""The interval between two checks of the cluster."""

STARTING_PERIOD_S = 0.1
TROUBLED_PERIOD_S = 1.0
"""The interval while it does not reply: short, because operators wait for it."""


REPORT_S = 1.0
REPORT_RETRY_S = 10.0
LAST_REPORT_S = 1.0


class ClusterWatch:
    """Checks periodically whether the cluster replies, for /readyz.

    `trouble` is why the cluster cannot be used now; "" if it can.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._task: asyncio.Task[None] | None = None
        self.trouble = "the cluster has not been queried yet"

    async def start(self, wait_s: float = 0.0) -> None:
        """Check repeatedly for up to `wait_s` until the cluster replies; then periodically.

        Brokers and console are often started together.
        """
        await self._ask()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.trouble:
                    await asyncio.sleep(STARTING_PERIOD_S)
                    await self._ask()
        self._task = background(self._go_on(), "watching the cluster")

    async def stop(self) -> None:
        """Stop checking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(TROUBLED_PERIOD_S if self.trouble else PERIOD_S)
            await self._ask()

    async def _ask(self) -> None:
        try:
            info = await self._gateway.admin.cluster.info()
        except KourouError as error:
            self.trouble = str(error)
        else:
            self._gateway.cluster_name = min(info.clusters, default=None)
            self.trouble = "" if info.brokers else "no broker is registered at the name servers"


class RefusalReporter:
    """Has what the console refused itself noted in the audit of a broker, once a second.

    If no broker replies, it is reported later. If brokers refuse that, because this console has not
    the role console, it is not.
    """

    def __init__(self, refusals: OwnRefusals, users: UsersApi) -> None:
        self._refusals = refusals
        self._users = users
        self._task: asyncio.Task[None] | None = None
        self._complained = False

    def start(self) -> None:
        """Start reporting."""
        self._task = background(self._go_on(), "reporting refusals")

    async def stop(self) -> None:
        """Report the last ones, if a broker replies soon."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                await self._report()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            if not await self._report():
                await asyncio.sleep(REPORT_RETRY_S)

    async def _report(self) -> bool:
        """Report what was counted; False if it should be tried again later."""
        taken = self._refusals.take()
        if not taken:
            return True
        try:
            await self._users.report_refusals(taken)
        except Rejected as error:
            if not self._complained:
                _log.warning(
                    "refusals-not-reported: refusals of this console are not in the brokers' audit:"
                    " %(error)s",
                    {"error": error},
                )
            self._complained = True
            return False
        except KourouError:
            self._refusals.put_back(taken)
            return False
        except asyncio.CancelledError:  # by `stop`, which reports once more
            self._refusals.put_back(taken)
            raise
        self._complained = False
        return True


class ConsoleService:
    """Implements kourou.service.lifecycle.Service."""

    name = "console"

    def __init__(
        self,
        settings: ConsoleSettings,
        clock: Clock | None = None,
        make_client: Callable[..., Client] | None = None,
    ) -> None:
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._text = render(settings, explained=False)
        self._make_client = make_client or self._new_client
        self._address = settings.wanted_name_servers
        self._pages = Pages()
        self._request_metrics = RequestMetrics()
        self._tokens: Tokens | None = None
        self._spans: RequestSpans | None = None
        self._gateway: Gateway | None = None
        self._users: UserGateways | None = None
        self._dispatch: Dispatch | None = None
        self._handler: HttpHandler | None = None
        self._http: GatewayServer | None = None
        self._listener: HttpListener | None = None
        self._watch: ClusterWatch | None = None
        self._refusals = OwnRefusals()
        self._reporter: RefusalReporter | None = None
        self._admin: AdminHttp | None = None
        self._warning = ClearTextWarning()
        self._listening: dict[str, str] = {}
        self._serving = False

    @property
    def gateway(self) -> Gateway:
        """What operations work with; available after `recover`."""
        assert self._gateway is not None, "recover comes first"
        return self._gateway

    # -- startup and shutdown -----------------------------------------------------------------

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Read the tokens, bind, and open the client; no request is sent yet."""
        settings = self._settings
        if settings.sign_in is SignInMode.USERS:
            await asyncio.to_thread(_check_hashes)
        if settings.token_file is not None:
            self._tokens = Tokens(settings.token_file, self._clock.monotonic_ms)
            self._reread_on_signal(self._tokens)
        self._spans = self._traced()
        self._http = gateway_server(self._answer)
        self._request_metrics.connections = lambda: self._http.open_count if self._http else 0
        self._request_metrics.cut_off = lambda: self._http.cut_off_count if self._http else 0
        await self._bind(self._http)
        if settings.admin_enabled:
            self._admin = AdminHttp(
                settings.admin_host, settings.admin_port, self._admin_pages(), settings.http_tls
            )
            await self._admin.start()
            self._listening["admin"] = self._admin.url
        self._gateway = Gateway(await self._open_client(), self._clock, settings, self._make_client)
        if settings.sign_in is SignInMode.USERS:
            self._users = UserGateways(self._gateway, self._open_client)
        self._watch = ClusterWatch(self._gateway)

    async def _bind(self, http: GatewayServer) -> None:
        host, port, tls = self._settings.bind_address, self._settings.port, self._settings.http_tls
        listener = HttpListener(http, host, port, tls, backlog=BACKLOG)
        try:
            await listener.start()
        except OSError as error:
            raise ConfigError(
                f"port {port} on {host} cannot be used: {error.strerror}",
                hint="set another consolePort, or 0 for any free port",
            ) from error
        self._listener = listener
        self._listening["http"] = listener.url
        if tls is None:
            self._warning.start(host, listener.address)

    async def serve(self) -> Mapping[str, str]:
        """Start handling requests; wait for the cluster's reply for CLUSTER_WAIT_S at most."""
        assert self._watch is not None
        self._dispatch = Dispatch(
            OPERATIONS, self.gateway, self._request_metrics, self._spans, self._users
        )
        sessions = None
        if self._users is not None:
            now_ms = self._clock.monotonic_ms
            sessions = Sessions(SignIns(self.gateway.admin.users, now_ms), now_ms)
        self._handler = HttpHandler(
            AccessControl(
                self._tokens, self._settings.host_names, sessions, self._settings.trusted_proxies
            ),
            self._dispatch,
            self._pages,
            description_pages(
                OPERATIONS, tokens=self._tokens is not None, users=sessions is not None
            ),
            self._request_metrics,
            self._unready,
            self._refusals,
        )
        self._reporter = RefusalReporter(self._refusals, self.gateway.admin.users)
        self._reporter.start()
        await self._watch.start(CLUSTER_WAIT_S)
        for make in STARTED:
            start = getattr(self.gateway.part(make), "start", None)
            if start is not None:
                await start()
        self._request_metrics.loop_lag.start()
        self._serving = True
        if self._watch.trouble:
            _log.warning(
                "cluster-unavailable: the cluster cannot be used yet: %(reason)s; retrying",
                {"reason": self._watch.trouble},
            )
        return self._listening

    def open_because(self) -> str:
        """Why every caller has all rights: none has to prove anything."""
        if self._tokens is not None or self._settings.sign_in is SignInMode.USERS:
            return ""
        return "neither tokenFile nor signIn=users is set"

    async def drain(self) -> None:
        """Accept no new requests; long-polling requests get a reply, others finish."""
        self._serving = False
        if self._listener is not None:
            await self._listener.close()
        if self._dispatch is not None:
            self._dispatch.leaving = True
        if self._http is not None:
            self._http.leave()
        metrics = self._request_metrics
        for _ in range(round(DRAIN_S / LOOK_S)):
            if not metrics.under_way and not metrics.streams:
                return
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """Close everything."""
        self._serving = False
        self._warning.stop()
        self._request_metrics.loop_lag.stop()
        if self._watch is not None:
            await self._watch.stop()
        if self._listener is not None:
            await self._listener.close()
        if self._http is not None:
            self._http.leave()
            await self._http.shutdown(timeout=1.0)
        if self._reporter is not None:
            await self._reporter.stop()
        if self._users is not None:
            await self._users.close()
        if self._gateway is not None:
            await self._gateway.close()
            await self._gateway.client.close()
        if self._admin is not None:
            await self._admin.stop()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    # -- components -------------------------------------------------------------------------------

    async def _answer(self, request: Any) -> Any:
        handler = self._handler
        if handler is None:  # bound, but not serving yet
            return error_response(Busy("the gateway is starting"))
        return await handler.answer(request)

    def _new_client(self, **options: Any) -> Client:
        return Client(self._address, **options)

    async def _open_client(self, user: str = "") -> Client:
        """The console's own client, or one whose requests are sent on behalf of a user."""
        client = self._make_client(
            settings=self._client_settings(user), producer=self._producer_settings()
        )
        return await client.open()

    def _client_settings(self, user: str) -> ClientSettings:
        settings = self._settings
        return ClientSettings(
            on_behalf_of=user,
            request_timeout_ms=settings.request_timeout_ms,
            trace_otlp_endpoint=settings.trace_otlp_endpoint or "",
            trace_sample_ratio=settings.trace_sample_percent / 100,
            curve_key_file=str(settings.curve_key_file or ""),
            curve_server_key=str(settings.curve_server_key or ""),
        )

    def _producer_settings(self) -> ProducerSettings:
        return ProducerSettings(
            producer_group=self._settings.producer_group,
            send_timeout_ms=self._settings.send_timeout_ms,
        )

    def _traced(self) -> RequestSpans | None:
        settings = self._settings
        options = tracing_options(
            os.environ,
            service_name=SERVICE,
            endpoint=settings.trace_otlp_endpoint or "",
            ratio=settings.trace_sample_percent / 100,
        )
        return None if options is None else RequestSpans(start_export(options))

    @staticmethod
    def _reread_on_signal(tokens: Tokens) -> None:
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, tokens.reread)

    # -- pages ------------------------------------------------------------------------------------

    def _admin_pages(self) -> AdminPages:
        return AdminPages(
            healthy=lambda: "",
            ready=self._unready,
            metrics=self._metrics,
            config=lambda: self._text,
            statistics=self._statistics,
        )

    def _unready(self) -> str:
        if not self._serving or self._watch is None:
            return "not serving"
        return self._watch.trouble

    def _metrics(self) -> bytes:
        base = {"node_type": self.name}
        families = [*self._request_metrics.families(base), open_family(base, self.open_because())]
        if self._users is not None:
            families += self._users.families(base)
        elif self._gateway is not None:
            families += self._gateway.families(base)
        if self._spans is not None:
            families += self._spans.families(base)
        return expose(families)

    def _statistics(self) -> Mapping[str, Any]:
        metrics = self._request_metrics
        return {
            "trouble": self._unready(),
            "requests": metrics.requests.total(),
            "under_way": metrics.under_way,
            "streams": metrics.streams,
            "connections": metrics.connections(),
            "cut_off": metrics.cut_off(),
            "refused": dict(metrics.refused),
        }


def _check_hashes() -> None:
    """Raise ConfigError if this machine cannot compute the hashes of passwords."""
    from kourou.service.passwords import new_hash  # only passwords need cryptography

    new_hash("x" * PASSWORD_LENGTH_MIN)


def run(argv: Sequence[str], called_as: str = "kourou") -> int:
    """Run a console until it receives a stop signal. Returns the exit code (0, 2, 70 or 75)."""
    return run_from_arguments(
        "console",
        "Kourou's HTTP gateway and web console.",
        argv,
        ConsoleSettings,
        ConsoleService,
        called_as=called_as,
    )
