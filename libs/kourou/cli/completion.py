"""`kourou completion bash|zsh|fish`: what a shell is told, so that Tab completes commands.

State: none; a user puts the script where the shell reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kourou.errors import BadRequest

VARIABLE = "_KOUROU_COMPLETE"
"""By which a shell's script asks; its value names the shell."""

PLACES = {
    "bash": "~/.local/share/bash-completion/completions/kourou",
    "zsh": "~/.zfunc/_kourou, with fpath+=~/.zfunc before compinit",
    "fish": "~/.config/fish/completions/kourou.fish",
}
"""By shell: where its users keep such scripts."""


def print_script(shell: str, called_as: str = "kourou") -> int:
    """Print the script of a shell. Raises BadRequest for one that there is none for."""
    from typer import completion

    if shell not in PLACES:
        raise BadRequest(f"no completion for {shell!r}", hint=f"supported: {', '.join(PLACES)}")
    # Imported there, and not listed as its own.
    make = completion.get_completion_script  # type: ignore[attr-defined]  # see above
    script = make(prog_name="kourou", complete_var=VARIABLE, shell=shell)
    print(f"# To have it always: {called_as} completion {shell} > {PLACES[shell]}\n{script}")
    return 0


def get_ready(environment: Mapping[str, str] = os.environ) -> None:
    """Where it is a shell that asks: let the command line answer it."""
    if VARIABLE in environment:
        from typer import completion

        # Typer calls this itself where an application adds its own two options for completion.
        completion.completion_init()  # type: ignore[attr-defined]  # imported there, not listed
