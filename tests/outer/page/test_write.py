"""One HTML file out of pages: what it holds, and that nothing of a run can get out of its place."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path

import pytest

from envolve.outer.page import write
from envolve.outer.page.charts import Dots, Line, dots, heat, intervals, lines, log_axis, robust
from envolve.outer.page.parts import Chart, Code, Fact, Film, Page, Part, Prose, Section, Table
from tests.outer.page.html import check_safe

ATTACK = "</script></style></pre><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7777 * 7777 }}\u202e"


def page(tmp_path: Path, text: str = "plain") -> Page:
    out = Page(tmp_path, text, text, text, facts=[Fact(text, text, text)], problems=[text])
    chart = lines(
        text, [Line(text, [1, 2], [3, math.nan], low=[2, 2], high=[4, 4])], text, text, text, levels=[(2, text)]
    )
    out.add(
        text, Prose(text), Prose(text, mono=True), Table((text, "n"), [(text, 1), (None, 0.5)], text), chart, lead=text
    )
    out.add("Code", Code(text, text, "python"), Film(tmp_path / "missing.mp4", text))
    return out


def test_a_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    parsed = check_safe(write.html([page(tmp_path)]))
    assert {"main", "nav", "table", "details", "figure"} <= parsed.names or "nav" not in parsed.names
    assert "Not everything could be read" in parsed.shown
    assert "missing.mp4: No such file or directory" in parsed.shown
    figure = parsed.data[0]
    assert figure["data"][-1]["y"] == [3, None] and figure["layout"]["shapes"][0]["y0"] == 2


def test_texts_of_a_run_are_only_texts(tmp_path: Path) -> None:
    parsed = check_safe(write.html([page(tmp_path, ATTACK)] * 2, page(tmp_path, ATTACK), ["A", "B"]))
    assert parsed.shown.count("<img src=x onerror=alert(1)>") > 10
    assert "{{ 7777 * 7777 }}" in parsed.shown and "60481729" not in parsed.shown
    assert "\u202e" not in parsed.shown and "\ufffd" in parsed.shown
    assert {"img"} & parsed.names == set()


def test_what_is_too_long_is_cut_and_counted() -> None:
    assert write.cut("x" * 5000) == "x" * 2000 + " [3,000 more characters]"
    long = write.cut("ab\n" * 100_000)
    assert long.endswith("[100,000 more characters]") and len(long) < 201_000
    assert write.cut("a\x1b[2Jb") == "a\ufffd[2Jb"


def test_json_within_a_script_cannot_end_it() -> None:
    text = str(write.data({"a": [ATTACK, math.inf, 1.5], 2: None}))
    assert "<" not in text and ">" not in text and "&" not in text
    assert json.loads(text)["a"][1:] == [None, 1.5]


def test_films_are_part_of_the_page_if_they_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "best.gif").write_bytes(b"GIF89a")
    (tmp_path / "video.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    out = Page(tmp_path, "k", "t")
    out.add("Films", Film(tmp_path / "best.gif", "a film"), Film(tmp_path / "video.mp4", "another"))
    parsed = check_safe(write.html([out]))
    found = {tag: attrs for tag, attrs in parsed.tags if tag in ("img", "video")}
    assert found["img"]["src"] == "data:image/gif;base64,R0lGODlh" and found["img"]["alt"] == "a film"
    assert str(found["video"]["src"]).startswith("data:video/mp4;base64,") and "autoplay" in found["video"]
    monkeypatch.setattr(write, "FILM_BYTES", 3)
    assert "found 6 bytes, expected at most 3" in check_safe(write.html([out])).shown


def test_a_film_is_a_film_and_no_link(tmp_path: Path) -> None:
    """A stranger's folder may call a link to a secret of the reader a film; the page would be sent on with it."""
    (tmp_path / "secret").write_text("the secret of the reader")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/a.gif").symlink_to("../secret")
    (tmp_path / "run/b.mp4").write_bytes(b"the secret of the reader")
    out = Page(tmp_path / "run", "k", "t")
    out.add("Films", *(Film(tmp_path / "run" / name, name) for name in ("a.gif", "b.mp4")))
    shown = check_safe(made := write.html([out])).shown
    assert "a.gif: found a link, expected a file" in shown and "b.mp4: found other bytes, expected a MP4" in shown
    assert base64.b64encode(b"the secret of the re").decode()[:20] not in made


def test_many_rows_fold_away(tmp_path: Path) -> None:
    out = Page(tmp_path, "k", "t")
    out.add("Rows", Table(("a",), [(i,) for i in range(60)]))
    parsed = check_safe(write.html([out]))
    assert "35 more rows" in parsed.shown and sum(tag == "tr" for tag, _ in parsed.tags) == 62


def test_limits_that_extreme_values_do_not_flatten() -> None:
    usual = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert robust(usual) is None and robust([1.0, math.nan]) is None
    low, high = robust([*usual, -7000.0]) or (0, 0)
    assert low == pytest.approx(0.8) and high == pytest.approx(5.2)
    low, high = robust([*usual, -7000.0, -100.0], keep=[-100.0]) or (0, 0)
    assert low < -100 and low > -110


def test_charts_say_what_they_leave_out() -> None:
    many = dots("t", [Dots("a", list(range(20_000)), [0.0] * 20_000)], "x", "y")
    assert len(many.data[0]["x"]) == 5000 and "20,000 points, of which one in 4 is drawn" in many.note
    rows = [("one", 1.0, 0.5, 2.0, "c0"), ("two", 2.0, None, None, "c1")]
    chart = intervals("t", rows, "x")
    assert chart.layout["yaxis"]["ticktext"] == ["one", "two"]
    assert chart.data[0]["error_x"]["array"] == [1.0] and chart.data[1]["error_x"]["array"] == [0.0]
    z = [[1.0, 2.0, 3.0], [2.0, -100.0, 1.0]]
    assert heat("t", z, [0, 1, 2], [0, 1], "x", "y", "z").data[0]["zmin"] > -1
    assert isinstance(chart, Chart)


def test_a_level_is_named_in_the_legend_and_not_on_the_data() -> None:
    for chart in (
        dots("t", [Dots("a", [1.0], [2.0])], "x", "y", levels=[(2.0, "solved: 2")]),
        intervals("t", [("one", 1.0, 0.5, 2.0, "c0")], "x", levels=[(2.0, "solved: 2")]),
    ):
        (shape,) = chart.layout["shapes"]
        assert shape["name"] == "solved: 2" and shape["showlegend"] and chart.layout["showlegend"]
        assert "annotations" not in chart.layout


def test_logarithmic_axes_have_whole_numbers() -> None:
    axis = log_axis([1_500, math.nan, 90_000]) or {}
    assert axis["type"] == "log" and axis["tickvals"][:4] == [1_000, 2_000, 5_000, 10_000]
    assert axis["ticktext"][1] == "2,000" and axis["ticktext"][-1] == "500,000"
    assert (log_axis([1, 10_000]) or {})["tickvals"] == [1, 10, 100, 1_000, 10_000]
    assert (log_axis([2e-6, 5e-3]) or {})["ticktext"] == ["1e-6", "1e-5", "0.0001", "0.001", "0.01"]
    assert (log_axis([0.1, 0.2], 1.0) or {})["ticktext"][:3] == ["0.1", "0.2", "0.5"]
    assert log_axis([]) is None and log_axis([0, 90]) is None and log_axis([10, 80]) is None


def test_no_half_of_the_page_stays_empty() -> None:
    tall, low, wide = (Chart(name, [], {}, height=h, wide=w) for name, h, w in
                       (("tall", 340, False), ("low", 170, False), ("wide", 340, True)))  # fmt: skip
    film, table = Film(Path("a.gif"), "a"), Table(("a",), [])

    def placed(*parts: Part) -> list[str]:
        return [place.strip() for _, place in write._placed(Section("t", list(parts)))]

    assert placed(tall, low, low) == ["tall", "", ""]  # two low ones beside a tall one
    assert placed(tall, tall, tall) == ["tall", "tall", "wide"]
    assert placed(low) == ["wide"] and placed(tall, tall) == ["tall", "tall"]
    assert placed(tall, wide, tall, tall, table, low) == ["wide", "wide", "tall", "tall", "wide", "wide"]
    assert placed(film, tall) == ["tall", "tall"] and placed(film) == ["tall"]
    assert placed(low, low, low, low) == [""] * 4  # three beside each other


def test_every_static_file_is_there_with_its_licence() -> None:
    folder = Path(write.__file__).parent / "static"
    assert "Plotly" in (folder / "plotly-LICENSE.txt").read_text()
    assert (folder / write.PLOTLY).stat().st_size < 1_600_000
    for name in write.SCRIPTS:
        assert "innerHTML" not in (folder / name).read_text() and "eval(" not in (folder / name).read_text()
