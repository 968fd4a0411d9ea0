"""Reads YAML into plain Python values and remembers the line of every key, so that an error can point at it.

Stricter than ``yaml.safe_load``: a key given twice is an error (PyYAML silently keeps the last), as are merge
keys and keys that are not text. More lenient in one point: a plain ``1e-4`` is a number (YAML 1.1 wants ``1.0e-4``).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Tuple

import yaml

Path = Tuple[str, ...]

MAX_DEPTH, MAX_NODES = 20, 20_000  # a configuration needs 3 and a few hundred; aliases can expand without bound
_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_SCALARS = {f"tag:yaml.org,2002:{t}" for t in ("null", "bool", "int", "float", "str", "timestamp", "binary")}
_MAP, _SEQ, _STR, _MERGE = (f"tag:yaml.org,2002:{t}" for t in ("map", "seq", "str", "merge"))


class ConfigError(Exception):
    """Raised with all problems of a configuration. ``problems`` and ``warnings``: one line of text each."""

    def __init__(self, problems: List[str], warnings: List[str] = ()) -> None:  # type: ignore[assignment]
        self.problems, self.warnings = list(problems), list(warnings)
        super().__init__("\n".join(self.problems + [f"note: {w}" for w in self.warnings]))


def show(value: Any) -> str:
    """Value as it would be written in YAML, in at most 60 printable characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return "a very long integer"
    return text if len(text) <= 60 else text[:57] + "..."


def show_key(path: Path) -> str:
    """Dotted key in printable form."""
    return ".".join(k if k.isprintable() and k else repr(k) for k in path)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.loader = yaml.SafeLoader("")
        self.lines: Dict[Path, int] = {(): 1}
        self.problems: List[str] = []
        self.nodes = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        line = node.start_mark.line + 1
        if len(path) > MAX_DEPTH or self.nodes > MAX_NODES:
            raise ConfigError([f"{self.name}:{line}: found too many or too deeply nested values, expected fewer"])
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            return [self.read(child, (*path, str(i))) for i, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            if node.tag == _STR and node.style is None and _EXPONENT.fullmatch(node.value):
                return float(node.value)
            try:
                return self.loader.construct_object(node)
            except Exception:  # PyYAML lets ValueError, KeyError, AttributeError through, depending on the tag
                pass
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        text = show(node.value) if isinstance(node, yaml.ScalarNode) else "a mapping or a list"
        self.problems.append(f"{self.name}:{line} {show_key(path)}: found {text}, expected what its tag {tag!r} says")
        return None

    def mapping(self, node: yaml.MappingNode, path: Path) -> Dict[str, Any]:
        out: Dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag != _STR or not isinstance(key_node, yaml.ScalarNode):
                found = "a merge key" if key_node.tag == _MERGE else "a key that is not text"
                where = show_key((*path, key_node.value if isinstance(key_node.value, str) else "?"))
                self.problems.append(f"{self.name}:{line} {where}: found {found}, expected a name")
                continue
            child = (*path, key_node.value)
            if key_node.value in out:
                first = self.lines[child]
                found = f"this key again (first in line {first})"
                self.problems.append(f"{self.name}:{line} {show_key(child)}: found {found}, expected it once")
                continue
            self.lines[child] = line
            out[key_node.value] = self.read(value_node, child)
        return out


def parse_yaml(raw: bytes, name: str) -> Tuple[Any, Dict[Path, int]]:
    """YAML text -> (plain value, line of every key; line of the document for ``()``).

    name: what the messages call the source. Raises ConfigError, with all problems found, and nothing else.
    """
    reader = _Reader(name)
    try:
        loader = yaml.SafeLoader(raw)
        node = loader.get_single_node()
        value = None if node is None else reader.read(node, ())
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        text = " ".join(t for t in (e.context, e.problem) if t)
        raise ConfigError([f"{name}{at}: found malformed YAML: {text}, expected YAML"]) from None
    except yaml.reader.ReaderError as e:
        line = raw[: e.position].count(b"\n") + 1
        raise ConfigError([f"{name}:{line}: found bytes that are not YAML text: {e.reason}, expected UTF-8"]) from None
    except RecursionError:
        raise ConfigError([f"{name}: found too deeply nested values, expected fewer"]) from None
    except (yaml.YAMLError, ValueError, OverflowError) as e:  # e.g. "\UFFFFFFFF", given to chr()
        raise ConfigError([f"{name}: found malformed YAML: {e}, expected YAML"]) from None
    if reader.problems:
        raise ConfigError(reader.problems)
    return value, reader.lines


def split_override(text: str) -> Tuple[str, str]:
    """Splits ``key=value``; the key is stripped. Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError([f"--set {show(text)}: found no '=', expected key=value"])
    return key.strip(), value


def override_value(key: str, value: str) -> Any:
    """Parses the value of an override as YAML. Raises ConfigError."""
    return option_value(f"--set {key}", value)


def option_value(option: str, text: str) -> Any:
    """Parses what was given to an option of the command line as YAML. Raises ConfigError."""
    return parse_yaml(text.encode("utf-8", "surrogatepass"), option)[0]
