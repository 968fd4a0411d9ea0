"""Servers and keys of the models.

Anthropic's compatible endpoint (temperature above 1 counts as 1, seed is ignored):
https://platform.claude.com/docs/en/cli-sdks-libraries/libraries/openai-sdk. Ollama's:
https://docs.ollama.com/api/openai-compatibility.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping

from envolve.core.registry import nearest
from envolve.llm.models.request import ChatError

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com/v1/"
OLLAMA_PORT = 11434
# Where each key may go: the server of --base-url gets LLM_API_KEY and never the key of OpenAI or Anthropic. None of the
# three may be in the environment of a process that runs code from a model.
KEYS = {OPENAI: "OPENAI_API_KEY", ANTHROPIC: "ANTHROPIC_API_KEY"}
OTHER_KEY = "LLM_API_KEY"


def find_server(name: str, base_url: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """Model name at its server, and base URL. Raises ChatError."""
    if name.startswith("ollama:"):
        url = ollama_url(environ)
        if not _is_url(url):
            raise ChatError(f"environment variable OLLAMA_HOST: found {url!r}, expected a host, host:port or URL")
        return name.removeprefix("ollama:"), url
    if base_url is not None:
        if not _is_url(base_url):
            raise ChatError(f"base URL {base_url!r}: expected http://... or https://..., usually ending in /v1")
        return name, next((url for url in KEYS if url.rstrip("/") == base_url.rstrip("/")), base_url)
    if re.match(r"gpt-|chatgpt-|o\d", name):
        return name, OPENAI
    if name.startswith("claude-"):
        return name, ANTHROPIC
    raise ChatError(
        f"unknown model {name!r}: expected gpt-..., claude-..., ollama:NAME or replay:FILE, or give --base-url URL for "
        "a server that knows this name"
    )


def _is_url(text: str) -> bool:
    """True if a client can send requests there: a host of labels that DNS allows, a port below 65536."""
    try:
        parts = urllib.parse.urlsplit(text)
        host, _ = (parts.hostname or "").encode("idna"), parts.port  # ValueError: no port, no IPv6 address, no label
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(host) and text.isprintable() and " " not in text


def ollama_url(environ: Mapping[str, str]) -> str:
    """Base URL from OLLAMA_HOST: a host, host:port or URL; 0.0.0.0, an address to listen at, becomes localhost."""
    scheme, _, rest = environ.get("OLLAMA_HOST", "").strip().strip("\"'").rpartition("://")
    host, _, path = rest.rstrip("/").partition("/")
    if not re.search(r":\d+$", host):
        host += {"http": ":80", "https": ":443"}.get(scheme, f":{OLLAMA_PORT}")
    host = re.sub(r"^(0\.0\.0\.0|\[::\])?:", "localhost:", host)
    return f"{scheme or 'http'}://{host}/{path}{'/' if path else ''}v1"


def key_name(base_url: str) -> str:
    """Name of the environment variable with the key for this server."""
    return KEYS.get(base_url, OTHER_KEY)


def find_key(name: str, base_url: str, environ: Mapping[str, str]) -> str:
    """Key of the server; "none" for servers that need none. Raises ChatError if OpenAI's or Anthropic's key is
    missing, or if a key cannot be sent."""
    if name.startswith("ollama:"):
        return "none"  # the client sends one, the server does not read it
    variable = key_name(base_url)
    key = environ.get(variable, "").strip()
    if not re.fullmatch(r"[\x20-\x7e]*", key):  # the client's error would quote it, in escapes that hide it from us
        raise ChatError(f"environment variable {variable}: found line breaks or other characters that no key has")
    if not key and variable != OTHER_KEY:
        near = nearest(variable, [n for n in environ if "KEY" in n.upper() and n not in (*KEYS.values(), OTHER_KEY)])
        mean = f" (found {near}, which is not read)" if near else ""
        raise ChatError(f"model {name!r} needs a key: set the environment variable {variable}{mean}")
    return key or "none"
