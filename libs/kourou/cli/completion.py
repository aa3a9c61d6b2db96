"""`kourou completion bash|zsh|fish`: prints the script for Tab completion in a shell.

State: none; the user saves the script where the shell reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kourou.errors import BadRequest

VARIABLE = "_KOUROU_COMPLETE"
"""Set by the shell's script when it requests completions; its value names the shell."""

PLACES = {
    "bash": "~/.local/share/bash-completion/completions/kourou",
    "zsh": "~/.zfunc/_kourou, with fpath+=~/.zfunc before compinit",
    "fish": "~/.config/fish/completions/kourou.fish",
}
"""By shell: the usual location of such scripts."""


def print_script(shell: str, called_as: str = "kourou") -> int:
    """Print the script of a shell; raises BadRequest for unsupported shells."""
    from typer import completion

    if shell not in PLACES:
        raise BadRequest(f"no completion for {shell!r}", hint=f"supported: {', '.join(PLACES)}")
    # An import in that module, not one of its exported names.
    make = completion.get_completion_script  # type: ignore[attr-defined]  # see above
    script = make(prog_name="kourou", complete_var=VARIABLE, shell=shell)
    print(f"# To have it always: {called_as} completion {shell} > {PLACES[shell]}\n{script}")
    return 0


def get_ready(environment: Mapping[str, str] = os.environ) -> None:
    """If a shell requests completions, let the command line reply."""
    if VARIABLE in environment:
        from typer import completion

        # Typer calls this itself only if the app has its two completion options.
        completion.completion_init()  # type: ignore[attr-defined]  # not an exported name
