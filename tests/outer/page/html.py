"""What is in a page, by a parser, as a browser would see it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "input", "img", "br", "source"}


class Parsed(HTMLParser):
    """Tags with their attributes; the texts of scripts; the text that is shown."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.shown = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif not self.open or self.open[-1] != "style":
            self.shown += data

    @property
    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}

    @property
    def data(self) -> list[Any]:
        """What the scripts of type application/json hold."""
        return [json.loads(text) for attrs, text in self.scripts if attrs.get("type") == "application/json"]


def check_safe(page: str) -> Parsed:
    """Asserts that the page runs only its own two scripts, has no handlers and asks nobody for anything."""
    parsed = Parsed(page)
    assert parsed.open == []
    policy = next(
        a["content"] for t, a in parsed.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None and policy.startswith("default-src 'none'")
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    running = [text for attrs, text in parsed.scripts if "type" not in attrs]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running} == allowed
    assert len(allowed) == len(running) == 2 and "unsafe-eval" not in policy
    for tag, attrs in parsed.tags:
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        for name in ("src", "href", "action", "data", "formaction"):
            value = attrs.get(name) or ""
            assert value == "" or value.startswith(("#", "data:")), (tag, value)
    assert not parsed.names & {"iframe", "object", "embed", "base", "svg"}
    return parsed
