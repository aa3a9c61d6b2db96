"""`kourou keys`: creates pairs of CURVE keys, and the keys that encrypt users' secrets.

Clients and services authenticate by CURVE keys. `make` is also the one-shot service of
docker-compose.yml: with --keep it may run at every start.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.transport.curve_keys import KeyPair, PublicKey

READABLE = 0o444
PRIVATE = 0o600

SPARK_DEFAULTS = """\
spark.authenticate true
spark.authenticate.secret {}
spark.ui.killEnabled false
"""
"""Without the first, every client of a Spark master may run code on the workers."""

ReadableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--readable",
        metavar="NAME",
        help=(
            "Make the secret file of this pair, or the file NAME.secret, readable for other users "
            "(on a volume of its own)."
        ),
    ),
]

RingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ring",
        metavar="NAME",
        help=(
            "Also write NAME.ring next to this pair, with the public keys of all servers, so "
            "that a client needs one file."
        ),
    ),
]

AccessKeysOption = Annotated[
    Path | None,
    typer.Option(
        "--access-keys", metavar="FILE", help="Also create an accessKeyFile (keys access)."
    ),
]

SecretOption = Annotated[
    list[Path] | None,
    typer.Option("--secret", metavar="FILE", help="Also write a random secret of a user."),
]

SparkOption = Annotated[
    Path | None,
    typer.Option(
        "--spark-defaults",
        metavar="FILE",
        help="Also write Spark's spark-defaults.conf, with a random secret of a cluster.",
    ),
]

keys = typer.Typer(
    name="keys",
    help="Create CURVE key pairs, and the keys that encrypt users' secrets.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@keys.callback()
def _group() -> None:
    """Create CURVE key pairs, and the keys that encrypt users' secrets."""


@keys.command(short_help="Create a key pair in each FOLDER, named after the folder.")
def make(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER[=ADDRESS,…]",
            help=(
                "The target folder; for a server also its addresses: host:port, host, *:port. "
                "The keys are named after the folder."
            ),
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="Another name (with one FOLDER only).")
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option(
            "--public",
            metavar="FOLDER[=NAME,…]",
            help="Also write the public keys here: all of them, or those of these names.",
        ),
    ] = None,
    ring: RingOption = None,
    access_keys: AccessKeysOption = None,
    secret: SecretOption = None,
    spark_defaults: SparkOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep existing pairs and files instead of failing.")
    ] = False,
    readable: ReadableOption = None,
) -> int:
    """Create NAME.key (public) and NAME.key_secret (private, mode 0600) in each FOLDER.

    Existing files are never overwritten.
    """
    from kourou.service.secret_keys import new_key_line, new_secret
    from kourou.transport import curve_keys  # import ZeroMQ only when needed

    wanted = [_parted(text) for text in folders]
    places = [_parted(text) for text in public or ()]
    if name is not None and len(wanted) > 1:
        raise ConfigError(
            "--name works with one folder only",
            hint=("omit --name: pairs are named after their folders"),
        )
    mode_of = dict.fromkeys(readable or (), READABLE)
    made: dict[str, tuple[Path, KeyPair, PublicKey]] = {}
    for folder, addresses in wanted:
        called = name or folder.absolute().name
        mode = mode_of.get(called, PRIVATE)
        pair, key = _pair(folder, called, addresses, mode=mode, keep=keep)
        made[called] = folder, pair, key
        for place, names in places:
            if not names or called in names:
                curve_keys.write_public(
                    place / f"{called}{curve_keys.PUBLIC}", pair.public, addresses
                )
    for called in ring or ():
        _make_ring(called, made)
    files = [] if access_keys is None else [(access_keys, new_key_line("1"))]
    files += [(path, f"{new_secret()}\n") for path in secret or ()]
    if spark_defaults is not None:
        files.append((spark_defaults, SPARK_DEFAULTS.format(new_secret())))
    for path, text in files:
        _file(path, text, mode=mode_of.get(path.stem, PRIVATE), keep=keep)
    return 0


@keys.command(short_help="Create or extend an accessKeyFile, which encrypts users' secrets.")
def access(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The file for the brokers' setting accessKeyFile."),
    ],
    key_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="The key's id (default for a new file: 1).")
    ] = "",
) -> int:
    """Create FILE with a random key (mode 0600), or with --id add a new key as its first line.

    The first key encrypts, all decrypt. Former keys are never changed or removed. All brokers of a
    cluster can have the same file; a replica needs that of its leader.
    """
    from kourou.service.secret_keys import SecretKeys, new_key_line

    if not os.path.lexists(file):
        _write_private(file, new_key_line(key_id or "1"), replace=False)
        print(f"made {file}", flush=True)
        return 0
    if not key_id:
        raise ConfigError(
            f"{file} exists already and is not overwritten",
            hint="to add a key as its first line: --id NEW_ID",
        )
    SecretKeys.read(file)  # raises if it is not a key file
    text = file.read_text(encoding="ascii")
    if any(line.partition(":")[0].strip() == key_id for line in text.splitlines()):
        raise ConfigError(f"{file} has a key {key_id} already", hint="choose another --id")
    _write_private(file.resolve(), new_key_line(key_id) + text, replace=True)
    print(f"added key {key_id} to {file}; restart the brokers", flush=True)
    return 0


def _file(path: Path, text: str, *, mode: int, keep: bool) -> None:
    """Write a file with this mode, or keep the existing one."""
    kept = keep and os.path.lexists(path)
    if not kept:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(path, text, mode=mode, replace=False)
    print(f"{'kept' if kept else 'made'} {path}", flush=True)


def _write_private(path: Path, text: str, *, mode: int = PRIVATE, replace: bool) -> None:
    """Write a file with this mode, whole or not at all; raises ConfigError."""
    try:
        number, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(number, "w", encoding="ascii") as file:
                if replace:
                    owner = path.stat()
                    if owner.st_uid != os.geteuid():
                        os.fchown(number, owner.st_uid, owner.st_gid)
                file.write(text)
                os.fchmod(number, mode)
                file.flush()
                os.fsync(number)
            if replace:
                Path(part).replace(path)
            else:
                os.link(part, path)  # fails if it exists, also as a link
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _pair(
    folder: Path, called: str, addresses: tuple[str, ...], *, mode: int, keep: bool
) -> tuple[KeyPair, PublicKey]:
    """Create a key pair in this folder, or keep the existing one."""
    from kourou.transport import curve_keys

    secret = folder / f"{called}{curve_keys.SECRET}"
    kept = keep and secret.exists()
    if not kept:
        curve_keys.make_pair(folder, called, addresses, mode=mode)
    pair = curve_keys.read_pair(secret)
    curve_keys.write_public(folder / f"{called}{curve_keys.PUBLIC}", pair.public, addresses)
    print(f"{'kept' if kept else 'made'} {secret}", flush=True)
    return pair, curve_keys.PublicKey(pair.public, addresses)


def _make_ring(name: str, made: Mapping[str, tuple[Path, KeyPair, PublicKey]]) -> None:
    from kourou.transport import curve_keys

    if name not in made:
        raise ConfigError(f"--ring {name}: none of the folders has that name")
    folder, pair, _ = made[name]
    servers = [public for _, _, public in made.values() if public.addresses]
    curve_keys.write_ring(folder / f"{name}{curve_keys.RING}", pair, servers)


def _parted(text: str) -> tuple[Path, tuple[str, ...]]:
    """Split `FOLDER=ADDRESS,…` into folder and addresses."""
    folder, _, addresses = text.partition("=")
    if not folder:
        raise ConfigError(f"{text!r} does not name a folder")
    return Path(folder), tuple(part.strip() for part in addresses.split(",") if part.strip())
