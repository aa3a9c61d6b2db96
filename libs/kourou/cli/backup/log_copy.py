"""`kourou backup`: copies the log of a running broker up to its committed position.

A run copies up to the position that was committed when it started, so that it ends under any load.
The next run continues there. State: none; the folder's manifest records the progress.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kourou.broker.network.log_source import FetchedLog, LogSource
from kourou.cli.backup.folder import BackupFolder, BackupManifest, parted
from kourou.client.client import Client
from kourou.client.session.client_keys import client_curve
from kourou.client.session.discovery import zmq_endpoint
from kourou.client.settings.client_settings import ClientSettings
from kourou.errors import BadRequest, Code, ConfigError, Corrupt, Rejected, Unavailable
from kourou.model.topic import MASTER_ID

GROUP = "kourou-backup"
_SHOWN_BYTES = 256 * 1024 * 1024
"""Progress is printed each time so many bytes were copied."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BackupSource:
    """The broker whose log is copied. `member`: its brokerId; None means the leader, or any
    replica.

    `address`: connect to it directly, without a name server.
    """

    broker: str
    namesrv: str | None = None
    member: int | None = None
    address: str = ""


def run_backup(source: BackupSource, to: Path, *, as_json: bool) -> int:
    """Copy the part of the broker's log that `to` lacks, and report its contents."""
    folder = BackupFolder(to)
    folder.open(make=True)
    try:
        asyncio.run(_back_up(source, folder, _quiet if as_json else _print_line))
    finally:
        folder.close()
    print(_report(folder, as_json=as_json), flush=True)
    return 0


async def _back_up(source: BackupSource, folder: BackupFolder, progress: Progress) -> None:
    address = source.address or await _address_of(source)
    endpoint = zmq_endpoint(address).removeprefix("tcp://")
    curve = client_curve(ClientSettings(), os.environ)
    async with LogSource(endpoint, source.broker, curve=curve) as log:
        await take(log, folder, progress)


async def _address_of(source: BackupSource) -> str:
    """The address of the replica to copy from."""
    async with Client(source.namesrv, group=GROUP) as client:
        members = await client.admin.replicas.of(source.broker)
    asked = [one for one in members if source.member in (None, one.registered_id)]
    if not asked:
        known = ", ".join(str(one.registered_id) for one in members)
        raise BadRequest(
            f"no replica {source.member} of {source.broker} is registered", hint=f"known: {known}"
        )
    living = [one for one in asked if one.error is None]
    if not living:
        raise Unavailable(f"no replica of {source.broker} responds: {asked[0].error}")
    return min(living, key=lambda one: (one.registered_id != MASTER_ID, one.registered_id)).address


async def take(log: LogSource, folder: BackupFolder, progress: Progress) -> None:
    """Copy the log up to the position that is committed now.

    Copied data is saved even after an error. Raises Corrupt if it is not the log that was copied
    before, or if its beginning was deleted; and errors of the broker and the disk.
    """
    if not folder.known:
        found, body = await log.beginning()
        folder.begin(found, body, log.address)
        progress(f"a new backup of {found.broker_name}, whose log begins at {found.position}")
    manifest = folder.manifest
    piece = await _same(log, folder)
    goal = piece.header.confirmed
    manifest.whole, manifest.source, manifest.confirmed = False, log.address, goal
    start = shown = manifest.end
    while piece.header.end > manifest.end:
        end = piece.header.end
        # Fetch the next piece while this one is checked and written.
        coming = asyncio.ensure_future(log.fetch(end)) if end < goal else None
        try:
            await asyncio.to_thread(folder.add, piece.header, piece.data)
        except BaseException:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            raise
        if piece.header.damage:
            progress(f"damaged at the broker, {manifest.damaged[-1]}")
        if manifest.end - shown >= _SHOWN_BYTES:
            shown = manifest.end
            progress(f"{_mib(shown - start)} of {_mib(goal - start)} MiB")
        if coming is None:
            break
        piece = await coming
        _check_beginning(manifest, piece)
    if manifest.end < goal:
        raise Corrupt(
            f"{log.address} has confirmed {goal}, but returns no data from {manifest.end}"
        )
    manifest.whole = True
    folder.save()


async def _same(log: LogSource, folder: BackupFolder) -> FetchedLog:
    """Fetch the next piece, after checking that the log is the one that was copied.

    Epochs identify a log that has them; the last record identifies one that was recreated.
    """
    manifest = folder.manifest
    if manifest.broker != log.group:
        raise ConfigError(
            f"the backup in {folder.path} is of {manifest.broker}, not of {log.group}",
            hint="use another folder",
        )
    try:
        return await _next_piece(log, folder)
    except Rejected as error:
        if error.wire_code != Code.SYSTEM_ERROR:
            raise
        raise parted(manifest, error.message) from error  # no record starts there


async def _next_piece(log: LogSource, folder: BackupFolder) -> FetchedLog:
    manifest = folder.manifest
    piece = await log.fetch(manifest.end)
    header = piece.header
    _check_beginning(manifest, piece)
    if header.confirmed < manifest.end:
        raise parted(
            manifest,
            f"{log.address} has committed only up to {header.confirmed}; try another replica",
        )
    if header.previous_epoch != manifest.history().last:
        raise parted(manifest, f"{log.address} has epoch {header.previous_epoch} there")
    record = folder.last_record()
    if record and manifest.last >= header.first_position:
        found = await log.fetch(manifest.last, len(record))
        if bytes(found.data[: len(record)]) != record:
            raise parted(manifest, f"{log.address} has another record at {manifest.last}")
    return piece


def _check_beginning(manifest: BackupManifest, piece: FetchedLog) -> None:
    first = piece.header.first_position
    if first > manifest.end:
        raise Corrupt(
            f"{manifest.broker} has deleted its log up to {first}, and this backup ends at "
            f"{manifest.end}: the data between is lost",
            hint=(
                "nothing was changed; start a new backup in another folder, and back up more "
                "often than fileReservedTime"
            ),
        )


# -- output -----------------------------------------------------------------------------------


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _quiet(_text: str) -> None:
    """Print no progress."""


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f}"


def _report(folder: BackupFolder, *, as_json: bool) -> str:
    manifest = folder.manifest
    if as_json:
        import msgspec

        facts = {
            "folder": str(folder.path),
            "cluster": manifest.cluster,
            "broker": manifest.broker,
            "first": manifest.first,
            "end": manifest.end,
            "taken": manifest.taken,
            "damaged": len(manifest.damaged),
        }
        return msgspec.json.encode(facts).decode()
    damage = f", {len(manifest.damaged)} damaged regions" if manifest.damaged else ""
    return (
        f"{manifest.cluster}/{manifest.broker} from {manifest.first} to {manifest.end} "
        f"({_mib(manifest.end - manifest.first)} MiB{damage}) in {folder.path}"
    )
