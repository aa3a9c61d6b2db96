"""The decisions of a filter server: inputs come in, effects go out.

    client_access  whether the broker lets a client send a request
    pulls          one pull from its arrival to its reply
    runner         one filter: its worker, the next worker, and the runs that wait
    slots          the number of workers, and which filter has one
    catalogue      the broker's filters, the registration with the broker, uploads of old clients
    discipline     failure counts and quarantine
    dry_runs       filters that are tried on the last messages of a topic

It is deterministic: the same inputs at the same times cause the same effects. So simulations can be
repeated by their seed.

State: soft, all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from kourou.access.model import plain_address
from kourou.errors import Code
from kourou.model.filter import FilterKey
from kourou.protocol.bodies.filter_bodies import FilterFigures, encode_filter_statistics
from kourou.protocol.messages.filter_server import (
    GetFilterStatistics,
    NotifyFiltersChanged,
    RegisterMessageFilterClass,
    TryFilter,
)
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.request import Request
from kourou.runtime import Disconnected, Peer, Received, Reply, Tick
from kourou_filter_server.catalogue import Catalogue, ClientUploads, ServerRegistration
from kourou_filter_server.client_access import ClientAccess, RefusalReports
from kourou_filter_server.context import CoreContext, FilterStatistics, ServerPolicy
from kourou_filter_server.discipline import Discipline
from kourou_filter_server.dry_runs import DryRuns
from kourou_filter_server.interface import (
    BatchEvaluated,
    BrokerAnswered,
    BrokerFound,
    Effect,
    FiltersChanged,
    Input,
    Leaving,
    WorkerEnded,
    WorkerReady,
)
from kourou_filter_server.pulls import LEAVING, ConsumerPulls
from kourou_filter_server.runner import FilterRunner, Runners
from kourou_filter_server.slots import Slots

_HANDLED = (
    PullMessage,
    TryFilter,
    RegisterMessageFilterClass,
    GetFilterStatistics,
    NotifyFiltersChanged,
)

NO_FILTERS = (
    "this filter server takes filters from clients on its machine, and from those with a CURVE "
    "key; upload it to the broker, or set filterUploadFromNetwork=true"
)


class FilterCore:
    """The decisions of a filter server. `listeners`: `carrier:listener` -> consumers' address."""

    def __init__(self, policy: ServerPolicy, address: str, listeners: Mapping[str, str]) -> None:
        self._context = context = CoreContext()
        self._filters_of_all = policy.filters_of_all
        self._leaving = False
        self.access = ClientAccess(context, policy, self._allowed)
        self._refusals = RefusalReports(context)
        self.statistics = statistics = FilterStatistics()
        self.catalogue = catalogue = Catalogue(context, self._filters_changed)
        self.slots = slots = Slots(context, policy)
        self.discipline = discipline = Discipline(
            context, policy, catalogue, statistics, self._quarantined
        )
        self.runners = Runners(
            lambda key: FilterRunner(key, context, policy, catalogue, slots, discipline, statistics)
        )
        self.uploads = ClientUploads(context)
        self.pulls = ConsumerPulls(
            context,
            policy,
            catalogue,
            self.runners,
            discipline,
            statistics,
            self.uploads.filter_of,
            self.access.fetched,
        )
        self.dry_runs = DryRuns(context, policy, slots)
        self.registration = ServerRegistration(context, policy, catalogue, address, listeners)

    @staticmethod
    def handles(header: type[Request]) -> bool:
        """Whether requests of this type are supported."""
        return header in _HANDLED

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> Sequence[Effect]:
        """See kourou.runtime."""
        context = self._context
        context.begin(now_ms)
        for item in inputs:
            match item:
                case Received():
                    self._received(item)
                case BrokerAnswered():
                    context.answered(item)
                case BatchEvaluated():
                    self.slots.evaluated(item)
                case WorkerReady():
                    self.slots.ready(item)
                case WorkerEnded():
                    self.slots.ended(item)
                case Tick():
                    context.clock(item.wall_ms)
                    self._tick()
                case Disconnected(peer):
                    self.access.disconnected(peer)
                    self.pulls.disconnected(peer)
                    self.dry_runs.disconnected(peer)
                case FiltersChanged(version, rights_changed):
                    self._changed(version, rights_changed=rights_changed)
                case BrokerFound():
                    self.access.broker_found()
                    self.pulls.prefetch.clear()
                    self.registration.found()
                case Leaving():
                    self._leave()
        return context.effects

    def _received(self, received: Received) -> None:
        brings_filters = isinstance(received.request, TryFilter | RegisterMessageFilterClass)
        if self._leaving:
            self._context.do(Reply(received.to, Code.SERVICE_NOT_AVAILABLE, LEAVING))
        elif brings_filters and not self._may_bring_filters(received.to.peer):
            self._refusals.note(received, NO_FILTERS)
            self._context.do(Reply(received.to, Code.NO_PERMISSION, NO_FILTERS))
        else:
            self.access.decide(received)

    def _allowed(self, received: Received) -> None:
        """Handle a request that the broker allows."""
        match received.request:
            case PullMessage() as request:
                self.pulls.arrived(received, request)
            case TryFilter() as request:
                self.dry_runs.begin(received, request)
            case RegisterMessageFilterClass() as request:
                self.uploads.upload(received, request)
            case GetFilterStatistics() as request:
                body = encode_filter_statistics(self.figures(request.consumer_group, request.name))
                self._context.do(Reply(received.to, body=(body,)))
            case NotifyFiltersChanged() as request:  # comes over the broker connection, too
                self._changed(request.filters_version, rights_changed=request.rights_changed)

    def _changed(self, filters_version: int, *, rights_changed: bool) -> None:
        """Take note of what the broker notifies of."""
        if rights_changed:
            self.access.rights_changed()
            self.pulls.rights_changed()
        self.catalogue.version_reported(filters_version)

    def _may_bring_filters(self, peer: Peer) -> bool:
        """Whether a peer is on this machine, or has proved a CURVE key, or all peers may."""
        if self._filters_of_all or peer.key:
            return True
        try:
            return ip_address(plain_address(peer.address[0])).is_loopback
        except ValueError:
            return False

    def _tick(self) -> None:
        self.registration.tick()
        self._refusals.tick()
        self.pulls.tick()
        self.dry_runs.tick()
        self.discipline.tick()
        self.slots.tick()
        self.runners.advance()

    def _leave(self) -> None:
        self._leaving = True
        self._refusals.leave()
        self.registration.leave()
        self.access.leave()
        self.pulls.leave()
        self.dry_runs.leave()

    def _filters_changed(self) -> None:
        self.runners.advance()
        self.pulls.filters_changed()

    def _quarantined(self, key: FilterKey) -> None:
        self.runners.advance(key)

    @property
    def left(self) -> bool:
        """Whether all replies and the unregistration are done, so that the service can end."""
        return self._leaving and not self._context.open_questions

    # -- statistics -------------------------------------------------------------------------------

    def figures(self, group: str = "", name: str = "") -> list[FilterFigures]:
        """The statistics of filters here: of all, of one group, or of one filter."""
        found = []
        for key, version, counts in self.statistics.all():
            if (group and key[0] != group) or (name and key[1] != name):
                continue
            runner = self.runners.known(key)
            found.append(
                FilterFigures(
                    group=key[0],
                    name=key[1],
                    version=version,
                    seen=counts.seen,
                    passed=counts.passed,
                    errors=counts.errors.total(),
                    skipped=counts.skipped,
                    unfiltered=counts.unfiltered,
                    batches=counts.batches,
                    micros=counts.micros,
                    bytes_in=counts.bytes_in,
                    bytes_out=counts.bytes_out,
                    starts=counts.starts,
                    failures=self.discipline.failure_count(key, version),
                    running=runner is not None and runner.version == version,
                    quarantined=self.catalogue.is_quarantined(key, version),
                    failure=counts.last_kind,
                    reason=counts.last_reason,
                    failed_at_ms=counts.last_failed_ms,
                )
            )
        return found
