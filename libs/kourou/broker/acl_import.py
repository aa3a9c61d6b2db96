"""Files with users: what `kourou user import` reads, and what `aclImportDir` keeps imported.

State of AclImport: soft, the files as they were read last.

A folder counts as a whole: all its files are read, or nothing changes. So does a file that is being
written: it is read when it has not changed between two looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kourou.clock import Clock
from kourou.errors import BadRequest, KourouError
from kourou.model.limits import ACL_BYTES_MAX, ACL_DEPTH_MAX

if TYPE_CHECKING:
    from kourou.access.plain_acl import ImportedAcl

_log = logging.getLogger("kourou.broker")

LOOK_S = 0.25
REPEAT_MS = 10_000
"""What was read is imported again after this time: a leader may have had no space, or be new."""

_SUFFIXES = frozenset({".yml", ".yaml", ".json"})

Marks = tuple[tuple[str, int, int, int, int], ...]


# -- reading --------------------------------------------------------------------------------------


def read_acl_file(file: Path, *, accept_whitelist: bool = False) -> ImportedAcl:
    """Read a plain_acl.yml, or users and ACLs of ACL 2.0 as JSON, YAML or text of mqadmin.

    Raises BadRequest, and OSError if the file cannot be read. YAML aliases, which can grow without
    end, and deep nesting are refused.
    """
    from kourou.protocol.bodies.acl_export import read_acl, tables_of

    if file.stat().st_size > ACL_BYTES_MAX:
        raise BadRequest(f"{file} has more than {ACL_BYTES_MAX} bytes")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not text in UTF-8") from error
    document = tables_of(text)
    if document is None:
        document = _yaml(file, text)
    return read_acl(document, accept_whitelist=accept_whitelist)


def _yaml(file: Path, text: str) -> Any:
    """The values of YAML, of which JSON is a part; raises BadRequest."""
    import yaml

    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise BadRequest(f"{file} has YAML aliases, which are not supported")
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


def read_acl_files(path: Path) -> ImportedAcl:
    """Read a file, or all files with users in a folder; of a user in two, the first one counts.

    Raises BadRequest if one of them cannot be read or is not valid, and if there is none, because
    an empty folder may be one that is not mounted.
    """
    from kourou.access.plain_acl import ImportedAcl

    try:
        files = _files_of(path)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    if not files:
        raise BadRequest(
            f"{path} has no file with users",
            hint="a plain_acl.yml; `accounts: []` in it stands for no users",
        )
    whole = ImportedAcl()
    for file in files:
        try:
            found = read_acl_file(file)
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
        whole.secrets = found.secrets | whole.secrets
    return whole


def _files_of(path: Path) -> list[Path]:
    """A file itself; of a folder the files with users in it and in folders below, but not hidden.

    Kubernetes keeps the contents of mounted folders in hidden ones.
    """
    if not path.is_dir():
        return [path]
    return sorted(
        one
        for one in path.rglob("*")
        if one.suffix in _SUFFIXES
        and one.is_file()
        and not any(part.startswith(".") for part in one.relative_to(path).parts)
    )


def _marks_of(path: Path) -> Marks:
    """What differs when a file was changed, replaced, made or removed, or its rights changed."""
    found = []
    with suppress(OSError):  # the import reports it
        for file in _files_of(path):
            status = file.stat()
            stamps = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
            found.append((str(file), *stamps))
    return tuple(found)


# -- importing ------------------------------------------------------------------------------------


class AclImport:
    """Reads the files again when they change. Runs on the service's loop, files in a thread.

    `imported` gets what was read. Files that cannot be read or are not valid change nothing; why is
    logged once.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        imported: Callable[[ImportedAcl], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._path, self._clock = path, clock
        self._imported, self._failed = imported, failed
        self._seen: Marks | None = None
        self._read: Marks | None = None
        self._found: ImportedAcl | None = None
        self._due_ms = 0
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
        if settled and marks != self._read:
            self._read = marks
            await self._read_files()
        now_ms = self._clock.monotonic_ms()
        if self._found is not None and now_ms >= self._due_ms:
            self._due_ms = now_ms + REPEAT_MS
            self._imported(self._found)

    async def _read_files(self) -> None:
        try:
            found = await asyncio.to_thread(read_acl_files, self._path)
        except KourouError as error:
            _log.warning("aclImportDir: %s; no user was changed", error)
            return
        for note in found.notes:
            _log.warning("aclImportDir: %s", note)
        self._found, self._due_ms = found, 0
