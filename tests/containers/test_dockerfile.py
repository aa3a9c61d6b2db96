"""The Dockerfile: no Java where none is needed, nothing unpinned, nothing hadolint dislikes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HADOLINT = Path(sys.executable).with_name("hadolint")
JAVA = re.compile(r"java|jdk|jre|pyspark|spark", re.IGNORECASE)
IMAGES = ("grafana", "jaeger", "postgres", "prometheus")


@pytest.fixture(scope="module")
def stages(root: Path) -> dict[str, tuple[str, str]]:
    """Stage -> what it is made from, and its instructions; comments left out."""
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: dict[str, tuple[str, str]] = {}
    for part in re.split(r"^FROM ", "\n".join(lines), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        base, _, name = head.partition(" AS ")
        found[name] = (base, body)
    return found


def ancestry(stages: dict[str, tuple[str, str]], name: str) -> set[str]:
    """A stage, what it is made from, and what it copies from."""
    if name not in stages:
        return set()
    base, body = stages[name]
    copied = re.findall(r"--from=(\S+)", body)
    return {name}.union(*(ancestry(stages, other) for other in [base, *copied]))


@pytest.mark.parametrize(
    "file",
    [
        "Dockerfile",
        *(f"tests/containers/images/{name}/Dockerfile" for name in IMAGES),
    ],
    ids=["ours", *IMAGES],
)
def test_hadolint_finds_nothing(root: Path, file: str) -> None:
    done = subprocess.run([HADOLINT, file], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN apt-get install curl\n")
    done = subprocess.run([HADOLINT, bad], capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_there_is_no_java_in_what_runtime_is_made_of(stages: dict[str, tuple[str, str]]) -> None:
    made_of = ancestry(stages, "runtime")
    assert {"runtime", "service", "build", "dependencies", "wheel"} <= made_of
    assert [name for name in made_of if JAVA.search("".join(stages[name]))] == []
    assert JAVA.search(stages["spark"][1]), "the look sees Java where it is"


def test_runtime_is_what_is_built_when_no_target_is_named(
    stages: dict[str, tuple[str, str]],
) -> None:
    assert list(stages)[-1] == "runtime"


@pytest.mark.parametrize("target", ["runtime", "spark"])
def test_nothing_runs_as_root(stages: dict[str, tuple[str, str]], target: str) -> None:
    assert re.findall(r"^USER (.*)$", stages[target][1], re.MULTILINE) == ["10001:10001"]


def test_java_is_one_package_of_one_version_without_a_screen(
    stages: dict[str, tuple[str, str]],
) -> None:
    """Debian's: nothing else is installed in what runs, and no list of packages stays."""
    _, body = stages["spark"]
    [command] = re.findall(r"^RUN ((?:.*\\\n)*.*)$", body, re.MULTILINE)
    installed = re.search(r"apt-get install (.*?)&&", command.replace("\\\n", " "))
    assert installed is not None
    assert installed[1].split() == [
        *("--yes", "--no-install-recommends"),
        "openjdk-17-jre-headless=17.*",
    ]
    assert "rm -rf /var/lib/apt/lists/*" in command
    assert "apt-get" not in stages["service"][1] + stages["runtime"][1]


@pytest.mark.parametrize(("target", "made"), [("runtime", "build"), ("spark", "spark-build")])
def test_what_runs_has_one_folder_of_the_build_and_no_pip(
    stages: dict[str, tuple[str, str]], target: str, made: str
) -> None:
    base, body = stages[target]
    assert base == "service"
    assert re.findall(r"^COPY (.*)$", body, re.MULTILINE) == [
        f"--from={made} /opt/kourou /opt/kourou"
    ]
    assert "pip uninstall --yes pip setuptools" in stages[made][1].rstrip().splitlines()[-1]


def test_spark_s_python_processes_take_what_is_compiled(
    stages: dict[str, tuple[str, str]],
) -> None:
    """Of an archive they would compile what they import, in each process anew."""
    assert "find /opt/kourou -path '*/pyspark/python/lib/*.zip' -delete" in stages["spark-build"][1]


def test_what_is_installed_is_pinned_by_hash(stages: dict[str, tuple[str, str]]) -> None:
    """Every command that may ask a registry demands hashes; the others ask none."""
    for name, (_, body) in stages.items():
        for command in re.split(r"&&|^RUN ", body.replace("\\\n", " "), flags=re.MULTILINE):
            if re.search(r"pip (install|wheel)", command):
                quiet = "--no-index" in command or command.rstrip().endswith(
                    "--wheel-dir /wheels ."
                )
                assert quiet or "--require-hashes" in command, f"{name}: {command}"


def test_the_lock_has_what_the_project_wants(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {
        "runtime": [*project["dependencies"], *extras["postgres"], *extras["otlp"]],
        "spark": extras["spark"],
        "build": tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["build-system"][
            "requires"
        ],
    }
    for file, requirements in wanted.items():
        text = (root / f"deploy/requirements/{file}.txt").read_text(encoding="utf-8")
        pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
        for requirement in requirements:
            match = re.fullmatch(r"([a-z0-9-]+)(?:\[\w+\])?>=([\d.]+)(?:,<([\d.]+))?", requirement)
            assert match is not None, requirement
            assert match[1] in pinned, f"{file}.txt lacks {match[1]}: make it anew"
            assert numbers(pinned[match[1]]) >= numbers(match[2]), requirement
            assert match[3] is None or numbers(pinned[match[1]]) < numbers(match[3]), requirement
        hashed = re.findall(r"^[a-z0-9-]+==.*\\\n +--hash", text, re.MULTILINE)
        assert text.count("==") == len(hashed), "something stands there without a hash"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_a_build_sees_sources_and_nothing_else(root: Path) -> None:
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything is left out that is not named"
    named = {line[1:] for line in rules if line.startswith("!")}
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    for source in " ".join(copied).split():
        assert any(source == name or source.startswith(f"{name}/") for name in named), source
        assert (root / source).exists(), source
    assert not any(name.startswith("deploy/secrets") or name == "deploy" for name in named)
