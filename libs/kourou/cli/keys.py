"""`kourou keys`: creates pairs of CURVE keys, by which clients and services authenticate.

`make` is also the one-shot service of docker-compose.yml: with --keep it may run at every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.transport.curve_keys import KeyPair, PublicKey

READABLE = 0o444
PRIVATE = 0o600

ReadableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--readable",
        metavar="NAME",
        help=(
            "Make the secret file of this pair readable for other users (on a volume of its own)."
        ),
    ),
]

keys = typer.Typer(
    name="keys",
    help="Create CURVE key pairs, by which clients and services authenticate.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@keys.callback()
def _group() -> None:
    """Create CURVE key pairs, by which clients and services authenticate."""


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
    ring: Annotated[
        list[str] | None,
        typer.Option(
            "--ring",
            metavar="NAME",
            help=(
                "Also write NAME.ring next to this pair, with the public keys of all servers, so "
                "that a client needs one file."
            ),
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep an existing pair instead of failing.")
    ] = False,
    readable: ReadableOption = None,
) -> int:
    """Create NAME.key (public) and NAME.key_secret (private, mode 0600) in each FOLDER.

    Existing files are never overwritten.
    """
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
    return 0


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
