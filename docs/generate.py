"""Write all generated pages.

    docs/generate.py                 write all pages
    docs/generate.py docs/reference  write only pages below a folder
    docs/generate.py --proved FILE   check that every test named as a proof passed in a run

Run it with .venv/bin/python.

tests/architecture/test_generated_pages.py fails if a page is not current.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from generators import dashboards, features, http, mqadmin, readme, reference
from generators.marks import Mark, find_marks

ROOT = Path(__file__).resolve().parent.parent
FEATURES = "docs/FEATURES.md"

PAGES: dict[str, Callable[[Path], str]] = {
    FEATURES: lambda root: features.page(root, find_marks(root)),
    **reference.PAGES,
    **dashboards.PAGES,
    **readme.PAGES,
    **mqadmin.PAGES,
    http.COMMANDS_PAGE: http.commands_page,
}


def main() -> int:
    """Run the command line; the exit code is 1 if a check fails."""
    parser = argparse.ArgumentParser(description="Generated pages of Kourou")
    parser.add_argument("below", nargs="?", default="", help="only pages whose path begins so")
    parser.add_argument("--proved", type=Path, metavar="FILE", help="what passed in a run")
    chosen = parser.parse_args()
    if chosen.proved is not None:
        return _check_proofs(chosen.proved)
    asked = [name for name in PAGES if name.startswith(chosen.below)]
    if not asked:
        parser.error(f"no page is made below {chosen.below}")
    if FEATURES in asked:
        print(f"collecting all tests for {FEATURES}; this takes up to a minute", flush=True)
    made = {name: PAGES[name](ROOT) for name in asked}
    for name in (name for name, text in made.items() if _differs(ROOT / name, text)):
        target = ROOT / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(made[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _differs(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


def _check_proofs(path: Path) -> int:
    """Check that docs/FEATURES.md is current, and that the run proved every row it calls done."""
    run = json.loads(path.read_text(encoding="utf-8"))
    marks = sorted(Mark(*entry) for entry in run["marks"])
    missing = features.unproved(marks, run["features"], slow=run["slow"], skipped=run["not_run"])
    for line in missing:
        print(f"{FEATURES} claims more than this run showed: {line}")
    stale = _differs(ROOT / FEATURES, features.page(ROOT, marks))
    if stale:
        print(f"{FEATURES} is not current: run .venv/bin/python docs/generate.py")
    return int(stale or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
