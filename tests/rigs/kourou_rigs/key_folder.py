"""The files of a closed cluster: CURVE pairs of its users, their public keys, and who they are.

<folder>/keys/NAME/NAME.key_secret    the pair of a user
<folder>/public/NAME.key              all public keys
<folder>/users.toml, till.secret      the initial users
<folder>/access.keys                  the key that encrypts secrets
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kourou.service.secret_keys import new_key_line
from kourou.transport.curve_keys import PairFile, make_pair, write_public


def write_access_keys(folder: Path) -> Path:
    """Write the key that encrypts secrets into a folder, if it is not there yet."""
    path = folder / "access.keys"
    if not path.exists():
        path.touch(0o600)
        path.write_text(new_key_line("one"), encoding="utf-8")
    return path


def first_user(folder: Path, line: str) -> dict[str, str]:
    """Write the files of a broker with one administrator; returns the settings that name them.

    `line` is NAME:SECRET, or NAME:curve:KEY.
    """
    first = folder / "first-admin"
    first.touch(0o600)
    first.write_text(line + "\n", encoding="utf-8")
    return {"accessKeyFile": str(write_access_keys(folder)), "initialAdminFile": str(first)}


class KeyFolder:
    """Makes the files; `hosts` has the address of each user that is a server."""

    def __init__(self, folder: Path, *names: str, hosts: Mapping[str, str]) -> None:
        self.folder = folder
        self.public = folder / "public"
        for name in names:
            make_pair(folder / "keys" / name, name)
            addresses = [hosts[name]] if name in hosts else []
            write_public(self.public / f"{name}.key", self.pair(name).pair.public, addresses)

    def secret(self, name: str) -> Path:
        """The file with a user's pair."""
        return self.folder / "keys" / name / f"{name}.key_secret"

    def pair(self, name: str) -> PairFile:
        """A user's pair."""
        return PairFile(self.secret(name))

    def settings(self, name: str) -> dict[str, str]:
        """The settings with the keys of a process."""
        return {"curveKeyFile": str(self.secret(name)), "curveServerKey": str(self.public)}

    def users(self, text: str, secret: str) -> dict[str, str]:
        """Write the initial users, and the secret of `till`; the settings of the broker."""
        users = self.folder / "users.toml"
        users.write_text(text)
        (self.folder / "till.secret").write_text(secret)
        keys = write_access_keys(self.folder)
        return {"accessKeyFile": str(keys), "initialUsersFile": str(users)}
