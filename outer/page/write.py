"""One HTML file out of pages: Jinja2 escapes every text, styles and scripts are part of the file.

Its Content-Security-Policy lets two scripts run, by their SHA-256: Plotly's and the page's own. No other script can,
and no request leaves the page, whatever a text contains.

Plotly's bundle (``static/plotly-cartesian.min.js``, MIT licence)
is that of the npm package plotly.js-cartesian-dist-min 4.1.1; ``docs/run_report.md`` says why this one.
"""

from __future__ import annotations

import base64
import errno
import functools
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import envolve
from envolve.core.cleaning import printable
from envolve.core.files import TABLE_BYTES, read_plain, read_text
from envolve.core.statistics import or_none
from envolve.outer.page.parts import Chart, Film, Lineage, Page, Parallel, Part, Section
from envolve.outer.reporting.report import precise

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
SCRIPTS = ("page.js", "lineage.js", "parallel.js")
PLOTLY = "plotly-cartesian.min.js"
LONGEST_TEXT, LONGEST_LINE = 200_000, 2_000  # characters of one text, and of a line of it
FILM_BYTES = 6_000_000  # a larger film stays a file beside the page
MIME = {".webp": "image/webp", ".gif": "image/gif", ".mp4": "video/mp4", ".png": "image/png"}
SMALL = 250  # px, height of a chart that takes a third of the width
LIVE_CONNECT = "'self'"


def html(pages: Sequence[Page], compare: Page | None = None, names: Sequence[str] = (), live: str = "") -> str:
    """The whole file. compare: what stands before several runs, which ``names`` tells apart; live: address at which the
    page asks for news ("": never)."""
    script, plotly = "\n".join(_static(name) for name in SCRIPTS), _static(PLOTLY)
    return (
        _environment()
        .get_template("page.html")
        .render(
            **_content(pages, compare, names),
            style=_safe(_static("style.css")),
            script=_safe(script),
            plotly=_safe(plotly),
            policy=policy(bool(live)),
            live=live,
            version=envolve.__version__,
            title=(compare or pages[0]).title + ", Envolve",
        )
    )


def body(pages: Sequence[Page], compare: Page | None = None, names: Sequence[str] = ()) -> str:
    """What ``html`` has within <main>."""
    return _environment().get_template("body.html").render(**_content(pages, compare, names))


def policy(live: bool) -> str:
    """Content-Security-Policy of a page."""
    hashes = " ".join(f"'sha256-{_digest(name)}'" for name in (PLOTLY, ""))
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; media-src data:; "
        f"connect-src {LIVE_CONNECT if live else chr(39) + 'none' + chr(39)}; base-uri 'none'; form-action 'none'"
    )


def _content(pages: Sequence[Page], compare: Page | None, names: Sequence[str]) -> dict[str, Any]:
    folders = ", ".join(str(page.folder) for page in pages)
    return {
        "pages": pages,
        "compare": compare,
        "names": list(names),
        "footer": printable(f"Made by envolve {envolve.__version__} from {folders}. The page needs no network."),
    }


@functools.cache
def _static(name: str) -> str:
    return read_text(HERE / "static" / name, TABLE_BYTES)


@functools.cache
def _digest(name: str) -> str:
    text = _static(name) if name else "\n".join(_static(script) for script in SCRIPTS)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # only who makes a page waits for it

    def load(name: str) -> str:
        return read_text(HERE / "templates" / name)

    made = Environment(loader=FunctionLoader(load), autoescape=True, undefined=StrictUndefined, finalize=_shown)
    made.filters |= {
        "cut": cut,
        "figure": _figure,
        "spec": _spec,
        "nodes": _nodes,
        "packed": _packed,
        "plain": _plain,
        "media": _media,
        "small": _small,
        "placed": _placed,
    }
    return made


def _shown(value: Any) -> Any:
    """What a template puts in: printable and of bounded length, unless it is ours (Markup)."""
    return cut(value) if type(value) is str else value


def _safe(text: str) -> Any:
    """A file of ours, as it is."""
    from markupsafe import Markup

    assert "</script" not in text.lower() and "</style" not in text.lower()
    return Markup(text)


def data(value: Any) -> Any:
    """JSON within <script type="application/json">: no "<" can end the script, no NaN is written."""
    from markupsafe import Markup

    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return or_none(value)
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, str):
        return cut(value)
    return value


def cut(text: object) -> str:
    """Printable text; what is too long to be shown is counted."""
    shown = printable(str(text))
    if len(shown) > LONGEST_TEXT:
        shown = f"{shown[:LONGEST_TEXT]}\n[{len(shown) - LONGEST_TEXT:,} more characters]"
    if len(shown) <= LONGEST_LINE:
        return shown
    return "\n".join(
        line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} [{len(line) - LONGEST_LINE:,} more characters]"
        for line in shown.split("\n")
    )


def _small(section: Section) -> bool:
    """True for many small charts, which fit three beside each other."""
    return len(section.parts) > 3 and all(isinstance(p, Chart) and p.height < SMALL for p in section.parts)


def _placed(section: Section) -> list[tuple[Part, str]]:
    """Each part with its classes. Where there is room for two columns, a tall chart has two rows, so that two low ones
    fit beside it. A chart without a neighbour takes the whole width."""
    out: list[tuple[Part, str]] = []
    filled = [0, 0]  # rows of the two columns
    alone = False  # whether the newest part began where the other column ended
    three = _small(section)
    for part in (*section.parts, None):
        half = isinstance(part, Film) or (isinstance(part, Chart) and not part.wide)
        if not half:
            if alone and not three and isinstance(out[-1][0], Chart):
                out[-1] = (out[-1][0], " wide")
            filled, alone = [0, 0], False
        if part is None:
            break
        rows = 1 if isinstance(part, Chart) and part.height < SMALL else 2
        out.append((part, "" if half else " wide") if three or not half or rows == 1 else (part, " tall"))
        if half:
            column = 0 if filled[0] <= filled[1] else 1
            alone = filled[1 - column] <= filled[column]
            filled[column] += rows
    return out


def _figure(value: float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else precise(float(value))


def _spec(chart: Chart) -> Any:
    return data({"data": chart.data, "layout": chart.layout})


def _nodes(part: Lineage) -> Any:
    return data({"nodes": part.nodes, "unit": part.unit, "best": part.best})


def _packed(part: Lineage) -> Any:
    """Base64 of gzip: a thousand candidates' code takes a tenth of its size."""
    details = {id_: {**_finite(content)} for id_, content in part.details.items()}
    for id_, film in part.films.items():
        details.setdefault(id_, {})["film"] = {**_media(film), "caption": cut(film.caption)}
    text = json.dumps(details, allow_nan=False, separators=(",", ":"))
    from markupsafe import Markup

    return Markup(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())


def _plain(part: Parallel) -> Any:
    return data({k: v for k, v in asdict(part).items() if k != "note"})


def _pictures(content: bytes) -> tuple[str, ...]:
    """Endings that fit the first bytes of a film or a picture."""
    begins = {
        ".png": content[:8] == b"\x89PNG\r\n\x1a\n",
        ".gif": content[:6] in (b"GIF87a", b"GIF89a"),
        ".webp": content[:4] == b"RIFF" and content[8:12] == b"WEBP",
        ".mp4": content[4:8] == b"ftyp",
    }
    return tuple(ending for ending, fits in begins.items() if fits)


def _media(film: Film) -> dict[str, Any]:
    """uri: the film as a part of the page; why: what is the matter where it is not."""
    try:
        if film.path.is_symlink():
            raise OSError(errno.EPERM, "found a link, expected a file")  # a stranger's folder may name any of ours
        content = read_plain(film.path, FILM_BYTES)
        if film.path.suffix not in _pictures(content):
            raise OSError(errno.EILSEQ, f"found other bytes, expected a {film.path.suffix[1:].upper()}")
    except OSError as e:
        return {"uri": "", "video": False, "why": printable(f"{film.path.name}: {e.strerror}")}
    kind = MIME[film.path.suffix]
    from markupsafe import Markup

    return {
        "uri": Markup(f"data:{kind};base64,{base64.b64encode(content).decode()}"),
        "video": kind.startswith("video"),
        "why": "",
    }
