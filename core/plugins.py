"""Files of the user's own: a search, a task or a learner that a configuration names as ``my_file.py:MyClass``.

What may be executed, and by whom:

- The master executes a file that the user's own configuration names; the path is relative to that configuration. The
  file's SHA-256 goes into the resolved configuration (``plugins:``) and a copy of the file into the run's folder.
- A worker executes a file only if it lies in a folder that the worker was started with (``--plugins DIR``, or one level
  below, which is where runs are) and has the SHA-256 that the chunk names. Local workers get the run's folder from
  their master, jobs of SLURM that of their run. Without the flag a worker executes no file at all.
- A worker of Ray, to which no folder is common, gets the bytes of these files with its start, from the run's folder
  (``outer/ray/``). It executes them by the same rule: if a chunk names their SHA-256.
- The process in which ``envolve evolve`` times an environment gets them on its standard input, from the master that has
  read them (``outer/auto/probe.py``), and executes what the plan's configuration names with its SHA-256.
- Nothing else: no code travels in the exchange, a chunk carries a bare file name and a checksum. The sync folder is
  never searched. A world file (``model.pt``) executes nothing either: whoever opens one that was evolved on a task of
  the user's own allows its folder first.

A file stands alone: it may import installed packages and ``envolve``, but not its neighbours, of which no checksum
would be known. What was hashed is what is executed: the bytes are read once (``core/by_path.py``). Python 3.8.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

from envolve.core.by_path import module_of
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.core.registry import nearest

KINDS = ("task", "learner", "search")
SHA256 = "sha256"
FILE = re.compile(r"[A-Za-z_]\w{0,99}\.py", re.ASCII)
CLASSES = re.compile(r"[A-Za-z_]\w{0,99}( [A-Za-z_]\w{0,99})*", re.ASCII)
REFERENCE = re.compile(r"(.+\.py):(\w+)", re.ASCII)

_sources: Dict[str, bytes] = {}  # SHA-256 -> the bytes of the files that were loaded in this process
_folders: List[Path] = []  # where a file may lie that a configuration from elsewhere names
_never: List[Path] = []  # where not
_contents: Set[bytes] = set()  # of files that count as held by an allowed folder


class PluginError(Exception):
    """A file of the user's own cannot be used. One line that names the file and what to do."""


class Source(NamedTuple):
    """A file that was loaded."""

    path: str
    sha256: str
    module: ModuleType

    @property
    def file(self) -> str:
        return os.path.basename(self.path)


def split(text: Any) -> Optional[Tuple[str, str]]:
    """``my_file.py:MyClass`` -> its file and its class; None: the text is no such reference."""
    match = REFERENCE.fullmatch(text) if isinstance(text, str) else None
    return (match[1], match[2]) if match else None


def load(path: Union[str, Path], sha256: Optional[str] = None) -> Source:
    """Executes the file, once per process. sha256: that it must have. Raises PluginError."""
    name = str(path)
    if not FILE.fullmatch(os.path.basename(name)):
        raise PluginError(f"{name}: found this name, expected letters, digits and _ before .py")
    return _execute(name, _read(name), sha256)


def _read(path: str) -> bytes:
    try:
        return read_plain(path, TEXT_BYTES)
    except OSError as e:
        from envolve.core.commands import near_file  # nothing else here needs it

        near = near_file(path, ".py", cutoff=0.6)
        words = f"found no readable file ({e.strerror}), expected a Python file{near}"
        raise PluginError(f"{path}: {words}") from None


def _execute(path: str, data: bytes, sha256: Optional[str]) -> Source:
    found = hashlib.sha256(data).hexdigest()
    if sha256 not in (None, found):
        raise PluginError(f"{path}: its SHA-256 is {found[:12]}..., expected {str(sha256)[:12]}...: it was changed")
    stem = os.path.basename(path)[:-3]
    name = f"envolve_plugin_{found[:16]}_{stem}"
    if name not in sys.modules:
        try:
            module_of(name, os.path.abspath(path), data)
        except (Exception, SystemExit) as e:  # a file may call sys.exit or argparse when it is imported
            raise PluginError(f"{place(e, path)}: {said(e)}") from e
    _sources[found] = data
    return Source(path, found, sys.modules[name])


def said(error: BaseException) -> str:
    """An exception in one line. One without words, as of a bare ``assert``, is said by the line that raised it."""
    words = (str(error).strip().splitlines() or [""])[0]
    if words:
        return f"{type(error).__name__}: {words}"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}: {last.line}"


def place(error: BaseException, path: str) -> str:
    """``path:line``, the last line of the file that the exception passed."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{path}:{error.lineno}"
    full = os.path.abspath(path)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == full]
    return f"{path}:{lines[-1]}" if lines else path


def class_of(source: Source, name: str, *bases: type) -> type:
    """The class ``name`` of a file, derived from one of ``bases``. Raises PluginError with the nearest name."""
    classes = {k: v for k, v in vars(source.module).items() if isinstance(v, type)}
    fitting = {k: v for k, v in classes.items() if issubclass(v, bases) and v.__module__ == source.module.__name__}
    wanted = " or ".join(f"{base.__module__}.{base.__name__}" for base in bases)
    if name in classes and not issubclass(classes[name], bases):
        raise PluginError(f"{source.path}: class {name}: found no subclass of {wanted}")
    if name not in classes:
        near = nearest(name, fitting, cutoff=0.0)
        mean = f", did you mean {near}" if near else f"; it has no subclass of {wanted}"
        raise PluginError(f"{source.path}: found no class {name}{mean}")
    return classes[name]


def check_methods(where: str, cls: type, base: type, needed: Tuple[str, ...]) -> None:
    """Raises PluginError if ``cls`` lacks one of the methods that ``base`` leaves to it."""
    for name in needed:
        mine, theirs = getattr(cls, name, None), getattr(base, name, None)
        if getattr(mine, "__func__", mine) is getattr(theirs, "__func__", theirs):  # __func__: of class methods
            own = [k for k in vars(cls) if not k.startswith("_") and not hasattr(base, k)]
            near = nearest(name, own, cutoff=0.6)
            mean = f", did you mean {near}" if near else ""
            raise PluginError(
                f"{where}: class {cls.__name__}: found no {name}, which every {base.__name__} defines{mean}"
            )


# ------------------------------------------------------------------------------------- what others may let us execute


def allowed() -> List[Path]:
    """Folders whose files may be executed, as ``allow`` was told."""
    return list(_folders)


def allow(folder: Union[str, Path]) -> None:
    """Files in this folder, or one level below, may be executed if a configuration names them with their SHA-256."""
    _folders.append(Path(folder).absolute())


def never(folder: Union[str, Path]) -> None:
    """Others write into this one: not even if it lies in a folder that is allowed."""
    _never.append(Path(folder).resolve())


def find(file: str, sha256: str) -> Source:
    """A file that is allowed here, by its bare name and SHA-256. Raises PluginError."""
    if not isinstance(file, str) or not FILE.fullmatch(file):
        raise PluginError(f"plugins: found the file name {file!r}, expected letters, digits and _ before .py")
    if sha256 in _sources:
        return _execute(file, _sources[sha256], sha256)
    if not _folders:
        raise PluginError(
            f"plugins: {file} is the user's own code, and no folder is allowed here; add "
            "--plugins DIR to the command, DIR being the folder of the run or that of the runs"
        )
    other = ""
    for path in _candidates(file):
        try:
            data = read_plain(path, TEXT_BYTES)
        except OSError:
            continue
        if hashlib.sha256(data).hexdigest() == sha256:
            return _execute(str(path), data, sha256)
        other = f"; {path} is another version of it"
    folders = ", ".join(map(str, _folders))
    raise PluginError(f"plugins: found no {file} with the run's SHA-256 {str(sha256)[:12]}... in {folders}{other}")


def remember(path: Union[str, Path]) -> str:
    """SHA-256 of a file of the user's own, which is not executed; ``find`` knows its bytes from now on. Raises
    PluginError."""
    data = _read(str(path))
    found = hashlib.sha256(data).hexdigest()
    _sources[found] = data
    return found


def receive(content: bytes) -> None:
    """Bytes of a file of the run's folder, from the driver that started this process: ``find`` and ``holds`` know them
    from now on. Executed is what a configuration names with its SHA-256."""
    _sources[hashlib.sha256(content).hexdigest()] = content
    _contents.add(content)


def content_of(sha256: str) -> bytes:
    """Bytes of a file that was loaded or remembered in this process."""
    return _sources[sha256]


def holds(file: str, content: bytes) -> bool:
    """Returns whether a folder that is allowed here has this file with exactly this content."""
    for path in _candidates(file):
        try:
            if read_plain(path, TEXT_BYTES) == content:
                return True
        except OSError:
            continue
    return content in _contents


def trust(content: bytes) -> None:
    """What the user's own configuration names counts as held by an allowed folder, in this process."""
    _contents.add(content)


def _candidates(file: str) -> List[Path]:
    """Where a file may lie, the allowed folders themselves first."""
    out = []
    for folder in _folders:
        try:
            below = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
        except OSError:
            below = []
        out += [f / file for f in [folder, *below] if not any(_inside(f, bad) for bad in _never)]
    return out


def _inside(folder: Path, other: Path) -> bool:
    folder = folder.resolve()
    return folder == other or other in folder.parents


# --------------------------------------------------------------------------------------- what a configuration uses


def check_section(section: Any) -> List[str]:
    """What is wrong with the ``plugins`` of a configuration: of others, or stored by an earlier run."""
    if not isinstance(section, dict):
        return ["found no mapping, expected the files that a run uses"]
    for file, entry in section.items():
        if not isinstance(file, str) or not FILE.fullmatch(file):
            return [f"found the file name {file!r}, expected letters, digits and _ before .py"]
        if not isinstance(entry, dict) or not {SHA256} < set(entry) <= {SHA256, *KINDS}:
            return [f"{file}: expected sha256 and one of {', '.join(KINDS)}"]
        if not isinstance(entry[SHA256], str) or not re.fullmatch("[0-9a-f]{64}", entry[SHA256]):
            return [f"{file}: sha256: found {entry[SHA256]!r}, expected 64 hexadecimal digits"]
        for kind in set(entry) - {SHA256}:
            if not isinstance(entry[kind], str) or not CLASSES.fullmatch(entry[kind]):
                return [f"{file}: {kind}: found {entry[kind]!r}, expected the name of a class"]
    return []


def copies(config: Mapping[str, Any]) -> Dict[str, bytes]:
    """File name -> bytes of the files that a resolved configuration uses; they were loaded in this process."""
    return {file: _sources[entry[SHA256]] for file, entry in config.get("plugins", {}).items()}


def source_of(cls: type) -> Optional[Source]:
    """The file that defines a class, if there is one that others can load: not of a class in the running script, which
    would run again, nor in a notebook."""
    name = cls.__module__
    module = sys.modules.get(name)
    if name == "__main__" or module is None:
        return None
    try:
        path = inspect.getsourcefile(cls)
    except TypeError:
        return None
    if path is None or not os.path.isfile(path) or not FILE.fullmatch(os.path.basename(path)):
        return None
    data = read_plain(path, TEXT_BYTES)
    found = hashlib.sha256(data).hexdigest()
    _sources[found] = data
    return Source(path, found, module)
