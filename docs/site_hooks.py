"""What the site has beside the pages of docs/: README, CONTRIBUTING and CHANGELOG, the examples that pages link to, and
the reference of every public name of ``envolve``. A public name without a docstring ends the build."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
COPIES = ("LICENSE", "CITATION.cff", "examples/*.py", "examples/*.yaml", "examples/*.ipynb")
LEAVE = re.compile(r"(\]\()(?!https?:|#)([^)\s]+)(\))")


def reference() -> str:
    """A page of names for mkdocstrings. Raises PluginError for one without a docstring."""
    sys.path.insert(0, str(ROOT))
    import envolve

    parts = ["# Reference", "Every public name of `import envolve`. [The library](library.md) explains their use."]
    bare = []
    for name in sorted(envolve.__all__, key=lambda n: (n[0].isupper(), n)):
        if name.startswith("__"):
            continue
        value = getattr(envolve, name)
        own = value.__doc__ or ""
        if not own.strip() or (inspect.isclass(value) and own.startswith(f"{name}(")):  # dataclasses write their own
            bare.append(name)
        parts.append(f"::: {value.__module__}.{value.__qualname__}")
    if bare:
        raise PluginError(f"public names of envolve without a docstring: {', '.join(bare)}")
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, config: Any) -> Files:
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=LEAVE.sub(_from_root, text)))
    for pattern in COPIES:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **more: Any) -> str:
    """Links that leave docs/ lead to what ``on_files`` has put there."""
    depth = page.file.src_uri.count("/")
    leaving = re.escape("](" + "../" * (depth + 1)) + "(?=CONTRIBUTING|CHANGELOG|README|examples/|LICENSE)"
    return re.sub(leaving, "](" + "../" * depth, markdown)


def _from_root(match: re.Match[str]) -> str:
    """A link of README, CONTRIBUTING or CHANGELOG."""
    target = match[2].removeprefix("docs/")
    path, mark, anchor = target.partition("#")
    return match[1] + PAGES.get(path, path) + mark + anchor + match[3]
