"""The documentation as a site: it is built without network, and a mistake in it is an error."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ("material", "mkdocstrings_handlers.python")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def needed() -> None:
    for name in NEEDED:
        if importlib.util.find_spec(name.split(".")[0]) is None:
            pytest.skip(f"{name} is missing: pip install envolve[docs]")


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Without a way to other hosts: whatever asks for one ends at a closed port."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(root / "mkdocs.yml"), "-d", str(out)]
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, text=True, capture_output=True, check=False, env=environment, cwd=root)


def copy(tmp_path: Path) -> Path:
    """The checkout with pages of its own, and links to all else."""
    root = tmp_path / "root"
    root.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("docs", "results", ".git") and not path.name.startswith("."):
            (root / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", root / "docs")
    return root


def test_the_site_asks_for_nothing(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        asked = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(https?:[^\"]*)\"", text)
        asked += re.findall(r"<link\b[^>]*\brel=\"(?:stylesheet|preload|icon)\"[^>]*href=\"(https?:[^\"]*)\"", text)
        assert asked == [], page.name
    reference = (tmp_path / "site" / "reference.html").read_text(encoding="utf-8")
    import envolve

    for name in envolve.__all__:
        assert name.startswith("__") or f'.{name}"' in reference, name


@pytest.mark.parametrize(
    "page,text,said",
    [
        ("run_report.md", "\n[nowhere](no_such_page.md)\n", "no_such_page.md"),
        ("run_report.md", "\n[nowhere](hpo.md#no-such-heading)\n", "no-such-heading"),
        ("in_no_menu.md", "# A page\n", "in_no_menu.md"),
    ],
)
def test_a_mistake_is_an_error(tmp_path: Path, page: str, text: str, said: str) -> None:
    root = copy(tmp_path)
    with (root / "docs" / page).open("a") as file:
        file.write(text)
    done = build(root, tmp_path / "site")
    assert done.returncode != 0 and said in done.stderr, done.stderr


def test_a_public_name_without_a_docstring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mkdocs")
    import envolve

    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert "::: envolve.api.evolve" in hooks.reference()

    def bare() -> None: ...

    monkeypatch.setattr(envolve, "bare", bare, raising=False)
    monkeypatch.setattr(envolve, "__all__", [*envolve.__all__, "bare"])
    with pytest.raises(Exception, match="public names of envolve without a docstring: bare"):
        hooks.reference()
