"""The documentation names only what exists: pages, headings, files, modules, `make` targets. The README stays short."""

from __future__ import annotations

import glob
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
CURRENT = [p for p in PAGES if p.name != "CHANGELOG.md"]  # the changelog may name what an older version had
FOLDERS = (
    "core", "envs", "agents", "outer", "llm", "distributed", "experiments", "slurm", "configs", "tests", "benchmarks",
    "docs", "envolve", "examples", ".ci",
)  # fmt: skip
KINDS = "py|md|yaml|yml|json|jsonl|sh|sbatch|png|txt|xml"
TO_BE_WRITTEN = {  # by the reader, or by a run
    "envs/user_functions/cartpole/my_reward.py", "my_reward.py", "my_params.py", "my_shaper.py", "best.py", "reward.py",
    "best_reward.py", "params.py", "env.py", "step.py", "curve.py", "corridor.py",
}  # fmt: skip
ELSEWHERE = {"training.py", "my_env.py", "my_ppo.py", "other_ppo.py"}  # JaxGCRL's, the reader's
PACKAGES = ("core", "envs", "agents", "outer", "llm", "distributed", "experiments", "slurm")
README_LINES = 120


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_page_has_its_place_on_the_site() -> None:
    """tests/test_site.py builds it, which is slow and needs mkdocs: what it says of new pages comes too late."""
    listed = re.findall(r"- (?:[^:\n]+: )?([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")]
    assert sorted(set(listed) - {"index.md", "reference.md", "CONTRIBUTING.md", "CHANGELOG.md"}) == sorted(pages)


def prose(text: str) -> str:
    """Without fenced code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(path.read_text(encoding="utf-8")), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-{sum(s.startswith(slug) for s in found)}")
    return found


def code(text: str) -> list[str]:
    """Everything that a page sets as code: fenced, indented or in backticks."""
    fenced = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    .*$", text, re.MULTILINE)
    return [*fenced, *indented, *re.findall(r"`([^`\n]+)`", prose(text))]


def alternatives(pattern: str) -> list[str]:
    """``a_{b,c}.yaml`` stands for two names."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if not found:
        return [pattern]
    start, end = pattern[: found.start()], pattern[found.end() :]
    return [name for part in found[1].split(",") for name in alternatives(start + part + end)]


def paths(text: str) -> set[str]:
    """The paths of this repository that a page names."""
    folders = "|".join(re.escape(folder) for folder in FOLDERS)
    found = set()
    for part in code(text):
        found |= set(re.findall(rf"(?<![\w./<>-])((?:{folders})/[\w./*{{}},-]+\.(?:{KINDS}))(?![\w/<>])", part))
        found |= set(re.findall(r"(?<![\w./-])(default_config_[\w{},*]+\.yaml|GTN_\w+\.py)", part))
    return {alternative for pattern in found for alternative in alternatives(pattern)}


def exists(pattern: str) -> bool:
    return bool(glob.glob(str(ROOT / pattern)))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = (page.parent / file).resolve() if file else page
        assert to.exists(), f"{name(page)}: no file {target}"
        if anchor:
            assert anchor in anchors(to), f"{name(page)}: no heading for {target}; there are {sorted(anchors(to))}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_rows_of_tables_have_as_many_cells_as_their_header(page: Path) -> None:
    def cells(line: str) -> int:
        plain = re.sub(r"`[^`]*`", "", line)
        return len(re.findall(r"(?<!\\)\|", plain)) - 1

    lines = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).split("\n")
    widths = [cells(line) if line.lstrip().startswith("|") else 0 for line in lines]
    for before, width, line in zip(widths, widths[1:], lines[1:]):
        assert not (before and width) or before == width, f"{name(page)}: {line[:80]}"
        assert "|---|" not in line or width, f"{name(page)}: a table inside a line: {line[:80]}"


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_paths_exist(page: Path) -> None:
    missing = [p for p in paths(page.read_text(encoding="utf-8")) if p not in TO_BE_WRITTEN and not exists(p)]
    assert not missing, f"{name(page)}: {sorted(missing)}"


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_files_named_without_their_folder_exist(page: Path) -> None:
    named = {
        n for part in code(page.read_text(encoding="utf-8")) for n in re.findall(r"(?<![\w./*<>}-])(\w+\.py)\b", part)
    }
    there = {p.name for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")} | {p.name for p in ROOT.glob("*.py")}
    missing = named - there - TO_BE_WRITTEN - ELSEWHERE
    assert not missing, f"{name(page)}: {sorted(missing)}"


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_modules_exist(page: Path) -> None:
    """``envolve.a.b``, and ``python -m benchmarks.a``: a module or a package, or a name in one."""
    text = page.read_text(encoding="utf-8")
    dotted = set(re.findall(rf"\benvolve((?:\.(?:{'|'.join(PACKAGES)}))(?:\.\w+)+)", text))
    dotted |= {"." + module for module in re.findall(r"-m ((?:benchmarks|tests)(?:\.\w+)+)", text)}
    for module in dotted:
        path = ROOT / module.strip(".").replace(".", "/")
        there = [p for p in (path, path.parent, path.parent.parent) if p != ROOT and p.with_suffix(".py").exists()]
        assert there or path.is_dir(), f"{name(page)}: no module {module.strip('.')}"


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        t for part in code(page.read_text(encoding="utf-8")) for t in re.findall(r"\bmake ([a-z][a-z0-9-]*)", part)
    }
    assert named <= targets, f"{name(page)}: no target {sorted(named - targets)}"


def test_docstrings_name_files_that_exist() -> None:
    """By the end of their paths. A name that begins with an underscore is an ending."""
    places = [*FOLDERS, "worlds"]
    there = {f"/{name(p)}" for folder in places for p in (ROOT / folder).glob("**/*.py")}
    there |= {f"/{p.name}" for p in ROOT.glob("*.py")} | {f"/{name(p)}" for p in (ROOT / "envolve").glob("*.py")}
    missing = [
        f"{name(path)}:{number}: {found}"
        for folder in (*PACKAGES, "worlds")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        for found in re.findall(r"``([a-zA-Z.][\w./-]*\.py)``", line)
        if found not in ELSEWHERE and not any(file.endswith("/" + found) for file in there)
    ]
    assert not missing, "\n".join(missing)


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES, f"README.md has {len(lines)} lines; move details to docs/"


def test_the_citation_is_complete() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    keys = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors", "version", "date-released", "license"} <= keys
    version = re.search(r'^version: "?([\d.]+)', text, re.MULTILINE)
    assert version and f"## [{version[1]}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_finder_of_paths_finds() -> None:
    text = "`core/files.py`, `python3 envs/none.py --flag`, [x](docs/x.md)\n```\nmake\n```\n`agents/{a,b}.py` `my/a.py`"
    assert paths(text) == {"core/files.py", "envs/none.py", "agents/a.py", "agents/b.py"}


HELP = ROOT / "experiments" / "help"


@pytest.mark.skipif(not HELP.is_dir(), reason="no texts of help")
@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_commands_exist(page: Path) -> None:
    """``python3 -m envolve <command>``: each command, or each of a group, has its text of help."""
    text = "\n".join(code(page.read_text(encoding="utf-8")))
    for command in re.findall(r"python3 -m envolve ((?:paper )?[a-z][a-z-]*)", text):
        text_of_help = command.replace(" ", "-")
        found = [*HELP.glob(f"{text_of_help}.txt"), *HELP.glob(f"{text_of_help}-*.txt")]
        assert found, f"{name(page)}: no command {command}"


def test_every_picture_is_made_again_by_make_film() -> None:
    """From random seeds or committed data alone; no page shows a picture from elsewhere."""
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile[makefile.index("\nfilm:") :].split("\n\n")[0]
    kinds = (".png", ".gif", ".jpg", ".svg", ".webp")
    pictures = {p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*") if p.suffix in kinds}
    assert pictures and all(picture in recipe for picture in pictures), pictures
    for page in PAGES:
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).resolve().relative_to(ROOT).as_posix() in pictures, f"{page}: {target}"
