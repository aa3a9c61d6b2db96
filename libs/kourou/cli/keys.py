"""`kourou keys`: pairs of CURVE keys, by which clients and services know one another.

Lives here: the commands and what they say. May not live here: the files themselves
(kourou.transport.curve_keys).

`make` is also the one-shot service of docker-compose.yml: with --keep it may run at every start.

State: none.
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

keys = typer.Typer(
    name="keys",
    help="Make pairs of CURVE keys, by which clients and services know one another.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@keys.callback()
def _group() -> None:
    """Make pairs of CURVE keys, by which clients and services know one another."""


@keys.command(short_help="Make a pair in each FOLDER, named after it.")
def make(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER[=ADDRESS,…]",
            help="Where the pair goes; for a server, the addresses at which it is dialled: "
            "host:port, host, *:port. The keys are named after the folder.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="Another name; with one FOLDER only.")
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option(
            "--public",
            metavar="FOLDER[=NAME,…]",
            help="Write the public keys here, too: all of them, or those of these names.",
        ),
    ] = None,
    ring: Annotated[
        list[str] | None,
        typer.Option(
            "--ring",
            metavar="NAME",
            help="Also NAME.ring beside this pair: with the public keys of all servers in it, so "
            "that a client needs one file.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="A pair that is there stays, and is no error.")
    ] = False,
    readable: Annotated[
        list[str] | None,
        typer.Option(
            "--readable",
            metavar="NAME",
            help="The secret file of this pair is for other users, too (a volume of its own).",
        ),
    ] = None,
) -> int:
    """Make NAME.key (to hand out) and NAME.key_secret (0600, to keep) in each FOLDER.

    Nothing is ever overwritten.
    """
    from kourou.transport import curve_keys  # ZeroMQ is loaded by those who need it

    wanted = [_parted(text) for text in folders]
    places = [_parted(text) for text in public or ()]
    if name is not None and len(wanted) > 1:
        raise ConfigError("--name is for one folder", hint="folders name their pairs themselves")
    made: dict[str, tuple[Path, KeyPair, PublicKey]] = {}
    for folder, addresses in wanted:
        called = name or folder.absolute().name
        secret = folder / f"{called}{curve_keys.SECRET}"
        kept = keep and secret.exists()
        if not kept:
            mode = READABLE if called in (readable or ()) else PRIVATE
            curve_keys.make_pair(folder, called, addresses, mode=mode)
        pair = curve_keys.read_pair(secret)
        key = pair.public
        made[called] = folder, pair, curve_keys.PublicKey(key, addresses)
        curve_keys.write_public(folder / f"{called}{curve_keys.PUBLIC}", key, addresses)
        for place, names in places:
            if not names or called in names:
                curve_keys.write_public(place / f"{called}{curve_keys.PUBLIC}", key, addresses)
        print(f"{'kept' if kept else 'made'} {secret}", flush=True)
    for called in ring or ():
        _make_ring(called, made)
    return 0


def _make_ring(name: str, made: Mapping[str, tuple[Path, KeyPair, PublicKey]]) -> None:
    from kourou.transport import curve_keys

    if name not in made:
        raise ConfigError(f"--ring {name}: none of the folders has that name")
    folder, pair, _ = made[name]
    servers = [public for _, _, public in made.values() if public.addresses]
    curve_keys.write_ring(folder / f"{name}{curve_keys.RING}", pair, servers)


def _parted(text: str) -> tuple[Path, tuple[str, ...]]:
    """A folder, and what is said of it behind `=`."""
    folder, _, told = text.partition("=")
    if not folder:
        raise ConfigError(f"{text!r} names no folder")
    return Path(folder), tuple(part.strip() for part in told.split(",") if part.strip())
