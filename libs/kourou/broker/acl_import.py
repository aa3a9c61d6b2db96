"""Files with users: what `kourou user import` reads, and what `aclImportDir` keeps imported.

State of AclImport: soft, the files as they were read last.

A folder counts as a whole: all its files are read, or nothing changes. A file that is being written
is read when it has not changed between two looks, and counts if it has not changed during the read.
No file, whatever it contains, ends a broker: what cannot be read is a BadRequest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kourou.clock import Clock
from kourou.errors import BadRequest, KourouError
from kourou.model.limits import (
    ACL_BYTES_MAX,
    ACL_DEPTH_MAX,
    ACL_FILES_MAX,
    ACL_FOLDERS_DEPTH_MAX,
)

if TYPE_CHECKING:
    from kourou.access.plain_acl import ImportedAcl

_log = logging.getLogger("kourou.broker")

LOOK_S = 0.25
REPEAT_MS = 10_000
"""What was read is imported again after this time: a leader may have had no space, or be new. So is
a read repeated that the system refused."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SUFFIXES = frozenset({".yml", ".yaml", ".json"})

Marks = tuple[tuple[str, int, int, int, int], ...]


# -- reading --------------------------------------------------------------------------------------


def read_acl_file(
    file: Path, *, cluster: str | None = None, accept_whitelist: bool = False
) -> ImportedAcl:
    """Read a plain_acl.yml, or users and ACLs of ACL 2.0 as JSON, YAML or text of mqadmin.

    Raises BadRequest, and OSError if the file cannot be read. YAML aliases, which can grow without
    end, deep nesting, and text that is not valid Unicode are refused. For `cluster` and
    `accept_whitelist` see kourou.protocol.bodies.acl_export.
    """
    from kourou.protocol.bodies.acl_export import read_acl, tables_of

    if file.stat().st_size > ACL_BYTES_MAX:
        raise BadRequest(f"{file} has more than {ACL_BYTES_MAX} bytes")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not text in UTF-8") from error
    try:
        document = tables_of(text)
        if document is None:
            document = _yaml(file, text)
        return read_acl(document, cluster=cluster, accept_whitelist=accept_whitelist)
    except KourouError:
        raise
    except Exception as error:  # noqa: BLE001 - no value of a file may end the process
        # The text of the error is left out: it may quote a secret.
        raise BadRequest(f"{file} cannot be converted: {type(error).__name__}") from None


def _yaml(file: Path, text: str) -> Any:
    """The values of YAML, of which JSON is a part; raises BadRequest."""
    import yaml

    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise BadRequest(f"{file} has YAML aliases, which are not supported")
            if isinstance(event, yaml.ScalarEvent) and _SURROGATE.search(event.value):
                raise BadRequest(
                    f"{file}, line {event.start_mark.line + 1}, has half a character as an escape",
                    hint="write the character itself",
                )
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > ACL_DEPTH_MAX:
                raise BadRequest(f"{file} has values in more than {ACL_DEPTH_MAX} levels")
        return yaml.load(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML checks no text that an explicit tag, such as !!bool, makes a value of another type.
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}" if place is not None else ""
        raise BadRequest(f"{file} is not valid YAML{where}") from error


def read_acl_files(path: Path, cluster: str) -> ImportedAcl:
    """Read a file, or all files with users in a folder; of a user in two, the first one counts.

    Raises BadRequest if one of them cannot be read, is not valid or changes meanwhile, and if there
    is none, because an empty folder may be one that is not mounted. Its cause is an OSError if the
    system refused the read, which may pass. `cluster` is the name of the broker's.
    """
    before = _marks_of(path)
    try:
        files = _files_of(path)
    except OSError as error:
        raise BadRequest(f"{error.filename or path} cannot be read: {error.strerror}") from error
    whole = _read_all(path, files, cluster)
    if _marks_of(path) != before:
        raise BadRequest(
            f"{path} changed while it was read", hint="write another file and rename it"
        )
    return whole


def _read_all(path: Path, files: list[Path], cluster: str) -> ImportedAcl:
    from kourou.access.plain_acl import ImportedAcl

    if not files:
        raise BadRequest(
            f"{path} has no file with users",
            hint="a plain_acl.yml; `accounts: []` in it stands for no users",
        )
    whole = ImportedAcl()
    for file in files:
        try:
            found = read_acl_file(file, cluster=cluster)
        except OSError as error:
            raise BadRequest(f"{file} cannot be read: {error.strerror}") from error
        except BadRequest as error:
            named = str(file) in error.message
            text = error.message if named else f"{file}: {error.message}"
            raise BadRequest(text, hint=error.hint) from error
        if found.shipped:
            raise BadRequest(
                f"{file} has accounts that RocketMQ ships ({', '.join(found.shipped)}): their"
                " secrets are public",
                hint="give them other secrets in the file, or remove them",
            )
        known = {one.name for one in whole.users}
        whole.notes += found.notes
        whole.notes += [
            f"user {one.name} of {file} is in another file already, which counts"
            for one in found.users
            if one.name in known
        ]
        whole.users += [one for one in found.users if one.name not in known]
        whole.policies += [one for one in found.policies if one.user not in known]
        whole.secrets |= {
            name: secret for name, secret in found.secrets.items() if name not in known
        }
    return whole


def _files_of(path: Path) -> list[Path]:
    """A file itself; of a folder the files with users in it and in folders below, but not hidden.

    Kubernetes keeps the contents of mounted folders in hidden ones, with links to them. Raises
    OSError if a folder cannot be listed or a link leads nowhere, because the users there are not
    gone, and BadRequest if there are too many.
    """
    if not stat.S_ISDIR(path.stat().st_mode):
        return [path]
    found: list[Path] = []
    count = 0
    for folder, below, names in os.walk(path, onerror=_raise, followlinks=True):
        below[:] = [one for one in below if not one.startswith(".")]
        count += 1 + len(names)
        depth = len(Path(folder).relative_to(path).parts)
        if count > ACL_FILES_MAX or depth > ACL_FOLDERS_DEPTH_MAX:
            raise BadRequest(
                f"{path} has more than {ACL_FILES_MAX} files, or folders in more than"
                f" {ACL_FOLDERS_DEPTH_MAX} levels",
                hint="a link to a folder above it has no end",
            )
        files = [Path(folder, one) for one in names if not one.startswith(".")]
        regular = [one for one in files if stat.S_ISREG(one.stat().st_mode)]
        found += [one for one in regular if one.suffix in _SUFFIXES]
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def _marks_of(path: Path) -> Marks:
    """What differs when a file was changed, replaced, made or removed, or its rights changed."""
    found = []
    with suppress(OSError, BadRequest):  # the import reports it
        for file in _files_of(path):
            status = file.stat()
            stamps = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
            found.append((str(file), *stamps))
    return tuple(found)


# -- importing ------------------------------------------------------------------------------------


class AclImport:
    """Reads the files again when they change. Runs on the service's loop, files in a thread.

    `imported` gets what was read. Files that cannot be read or are not valid change nothing; why is
    logged once. `cluster` is the name of the broker's.
    """

    def __init__(
        self,
        path: Path,
        cluster: str,
        clock: Clock,
        imported: Callable[[ImportedAcl], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._path, self._cluster, self._clock = path, cluster, clock
        self._imported, self._failed = imported, failed
        self._seen: Marks | None = None
        self._read: Marks | None = None
        self._found: ImportedAcl | None = None
        self._said = ""
        self._due_ms = 0
        self._retry_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """End it; a file that is being read is not imported."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        try:
            while True:
                await self.look()
                await asyncio.sleep(LOOK_S)
        except Exception as error:  # noqa: BLE001 - a bug, it ends the process
            self._failed(error)

    async def look(self) -> None:
        """Read the files if they changed before the last look, and not since then."""
        marks = await asyncio.to_thread(_marks_of, self._path)
        settled, self._seen = marks == self._seen, marks
        now_ms = self._clock.monotonic_ms()
        repeats = self._retry_ms is not None and now_ms >= self._retry_ms
        if settled and (repeats or marks != self._read):
            if marks != self._read:
                self._read, self._said = marks, ""
            await self._read_files(now_ms)
        if self._found is not None and now_ms >= self._due_ms:
            self._due_ms = now_ms + REPEAT_MS
            self._imported(self._found)

    async def _read_files(self, now_ms: int) -> None:
        self._retry_ms = None
        try:
            found = await asyncio.to_thread(read_acl_files, self._path, self._cluster)
        except KourouError as error:
            if isinstance(error.__cause__, OSError):
                self._retry_ms = now_ms + REPEAT_MS
            if str(error) != self._said:
                self._said = str(error)
                _log.warning(
                    "acl-files-unusable: aclImportDir: %(error)s; no user was changed",
                    {"error": error},
                )
            return
        self._said = ""
        for note in found.notes:
            _log.warning("acl-import-incomplete: aclImportDir: %(note)s", {"note": note})
        self._found, self._due_ms = found, 0
