"""Every kind of run is known by its folder, shown, and shown in part where it is damaged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from envolve.experiments.pages import KINDS
from envolve.outer.page import run_page, write
from envolve.outer.page.common import possible, with_unit
from envolve.outer.page.compare import compare, differences, names_of
from envolve.outer.page.kinds import NoRunError, read_page
from envolve.outer.page.parts import Chart, Page, Table
from tests.outer.page.folders import ALL
from tests.outer.page.html import check_safe
from tests.pictures.rules import MEASURED, NO_UNIT, UNITS

VERDICTS = {
    "run": "Solved (mean return of at least -20.0): agents trained in the world return -12.0 on the task after "
    "1,239 [1,223, 1,255] steps each, agents trained on the task -12.0 after 1,493 [1,473, 1,505]; evolving took "
    "2,967,241 real steps, which pays after 11,719 agents.",
    "evolve": "The world helped: PPO returns 78.5.",
    "shapers": "Candidate mine scores 0.9 [0.7, 0.95] (share of the time limit), more than the human's shapers "
    "(0.8 [0.6, 0.9]); their intervals overlap; 1 failed; price: 30 environment steps per agent.",
    "study": "The lowest loss at 15",
    "goal": "After 200 steps of each member, 0.2",
    "goals": "16 fresh agents each; evolved 0.01 [0.00, 0.06]; plain 0.00; difference +0.01 (brackets: 95 % intervals",
    "distributed": "After 40 gradient steps the greedy policy returns 27.0, standard deviation 3.0 over 5 episodes.",
    "paper": "1 data file with 2 series; 1 of them from a quick look, too small to conclude from.",
    "worlds": "3 of 3 worlds are solved; score, interquartile mean over worlds: -1252",
    "write": "Best so far i0",
    "gym": "The best of 6 rewards reaches 11.5 (fitness of the final policy); the environment's own reward 7.5; 2 have",
}


@pytest.fixture(params=list(ALL))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    return request.param, ALL[request.param](tmp_path / f"folder_{request.param}")


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plotly's 1.5 MB, the same in every page, are a few letters: nine tenths of a page's time are theirs."""
    real = write._static
    monkeypatch.setattr(write, "_static", lambda name: "plotly" if name == write.PLOTLY else real(name))
    monkeypatch.setattr(write, "_digest", write._digest.__wrapped__)


def charts(page: Page) -> list[Chart]:
    return [part for section in page.sections for part in section.parts if isinstance(part, Chart)]


def test_each_kind_is_shown(made: tuple[str, Path]) -> None:
    name, folder = made
    page = read_page(folder, KINDS)
    assert page.problems == []
    assert page.verdict.startswith(VERDICTS[name])
    assert re.findall(r"[.!?](?=\s|$)", page.verdict) == ["."], "a verdict is one sentence"
    assert folder.name not in page.title  # no name of a folder is a title
    assert page.facts and len(page.sections) >= 3 and charts(page)
    for chart in charts(page):
        axes = [chart.layout.get(key, {}) for key in ("xaxis", "yaxis")]
        named = [a.get("title", {}).get("text") or a.get("ticktext") or a.get("type") == "category" for a in axes]
        bar_or_violin = any(trace.get("type") in ("violin", "bar") for trace in chart.data)
        assert all(named) or bar_or_violin, chart.title
        assert any(len(trace.get("x", trace.get("y", []))) for trace in chart.data), chart.title
    check_safe(write.html([page]))


def test_damaged_files_are_said_and_the_rest_is_shown(made: tuple[str, Path], light: None) -> None:
    """Each file cut in half, full of zeros, of random bytes, and empty: a page is made, or the folder is none."""
    name, folder = made
    rng = np.random.default_rng(0)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        whole = path.read_bytes()
        for bad in (whole[: len(whole) // 2], b"\0" * 100, rng.bytes(200), b"", b"[]", b'{"a": {"b": [1, {}]}}\n'):
            path.write_bytes(bad)
            try:
                page = read_page(folder, KINDS)
            except NoRunError as e:
                assert str(folder) in str(e)
                continue
            check_safe(write.html([page]))
        path.write_bytes(whole)


def test_several_runs_side_by_side(tmp_path: Path) -> None:
    folders = [ALL["run"](tmp_path / "a"), ALL["run"](tmp_path / "b"), ALL["study"](tmp_path / "c")]
    text = (folders[1] / "config.yaml").read_text().replace("max_iterations: 6", "max_iterations: 9")
    (folders[1] / "config.yaml").write_text(text)
    pages = [read_page(folder, KINDS) for folder in folders]
    together = compare(pages[:2])
    table = next(p for s in together.sections for p in s.parts if isinstance(p, Table) and s.title == "Configurations")
    assert table.rows == [("agents.gtn.max_iterations", "6", "9")] and table.caption == "1 key differs"
    figures = next(p for s in together.sections for p in s.parts if isinstance(p, Table) and s.title == "Figures")
    assert figures.rows[0] == ["What came out", pages[0].verdict, pages[1].verdict]
    assert ["Generations", "6, at most 6", "6, at most 9"] in figures.rows
    assert [trace["name"] for trace in charts(together)[0].data] == ["A", "B"]  # their titles are the same
    assert len(charts(together)) == 1 and len(charts(together)[0].data) == 2
    parsed = check_safe(write.html(pages, compare(pages), names_of(pages)))
    assert "A: Cliff" in parsed.shown and "3 runs side by side" in parsed.shown
    assert len({attrs["id"] for _, attrs in parsed.tags if attrs.get("id")}) == sum(
        "id" in attrs for _, attrs in parsed.tags
    )


def test_differences_of_nested_keys() -> None:
    a = {"x": {"y": 1, "same": [1, 2]}, "only": True}
    b = {"x": {"y": 2, "same": [1, 2]}, "z": {}}
    assert differences([a, b]) == [("x.y", "1", "2"), ("only", "True", "(absent)"), ("z", "(absent)", "{}")]


def test_what_is_no_run(tmp_path: Path) -> None:
    run = ALL["run"](tmp_path / "results_cliff")
    with pytest.raises(
        NoRunError, match=r"found no such folder, expected the folder of a run; nearest: .*results_cliff"
    ):
        read_page(tmp_path / "results_clif", KINDS)
    with pytest.raises(
        NoRunError, match=r"found results_cliff, expected the folder of a run: .* Runs in it: .*results_cliff$"
    ):
        read_page(tmp_path, KINDS)
    with pytest.raises(NoRunError, match="found a file"):
        read_page(run / "config.yaml", KINDS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoRunError, match="found an empty folder"):
        read_page(tmp_path / "empty", KINDS)


def test_a_run_that_goes_on_and_one_that_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from envolve.outer.page import reading

    folder = ALL["run"](tmp_path / "run")
    (folder / "summary.txt").unlink()
    with (folder / "scores.csv").open("a") as file:
        file.write("7,0,orig,-14")
    page = read_page(folder, KINDS)
    assert page.state == "running" and page.verdict == "6 of 6 generations so far; best mean score -1,446."
    monkeypatch.setattr(reading, "STILL", -1.0)
    assert read_page(folder, KINDS).state == "not complete"


def test_a_link_or_a_pipe_in_a_folder_is_no_trap(tmp_path: Path) -> None:
    import os

    folder = ALL["shapers"](tmp_path / "run")
    os.mkfifo(folder / "best.gif")
    (folder / "ranking.txt").unlink()
    os.mkfifo(folder / "ranking.txt")
    assert read_page(folder, KINDS).problems == []
    shutil.rmtree(folder)


def test_every_chart_says_what_its_axes_are(made: tuple[str, Path]) -> None:
    """A title with its unit, or ticks that are words; and in words what it shows."""
    for chart in charts(read_page(made[1], KINDS)):
        for which in ("xaxis", "yaxis"):
            axis = chart.layout.get(which, {})
            words = axis.get("title", {}).get("text") or axis.get("ticktext") or axis.get("visible") is False
            key = which[0]
            named = [v for trace in chart.data for v in trace.get(key) or [trace.get("name")]]
            assert words or all(isinstance(v, str) for v in named), f"{chart.title}: no title on the {which}"
            title = axis.get("title", {}).get("text", "")
            if MEASURED.search(title) and not NO_UNIT.search(title):
                assert UNITS.search(title) or "since" in title, f"{chart.title}: no unit in {title!r}"
        assert chart.title and chart.about


def test_intervals_of_scores_end_where_scores_do() -> None:
    assert possible([0.22, 1.65], "share of the time limit") == (0.22, 1.0)
    assert possible([-0.5, 1.65], "m/s") == (-0.5, 1.65) and possible(None, "m") == (None, None)
    assert with_unit("0.9", "share of the time limit") == "0.9 (share of the time limit)"
    assert with_unit("0.9", "m/s") == "0.9 m/s" and with_unit("3", "") == "3"


def test_a_run_without_its_comparison_still_has_a_verdict() -> None:
    found = "CartPole-v0, synthetic environment: not solved (mean return of at least 195.0)\n  3 generations\n"
    found += "  Price with the evolution: 1,000 real steps were spent on evolving.\n"
    price = "Price with the evolution: 1,000 real steps were spent on evolving."
    said = run_page.verdict(found, None, [], {}, "complete")
    assert said == f"Not solved (mean return of at least 195.0); p{price[1:]}"


def test_a_link_out_of_the_folder_is_not_followed(made: tuple[str, Path], light: None, tmp_path: Path) -> None:
    _, folder = made
    secret = tmp_path / "secret"
    secret.write_text("the secret of the reader\n")
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        kept = path.read_bytes()
        path.unlink()
        path.symlink_to(secret)
        try:
            page = read_page(folder, KINDS)
        except NoRunError as e:
            assert "secret of the reader" not in str(e)
        else:
            assert "the secret of the reader" not in check_safe(write.html([page])).shown
        path.unlink()
        path.write_bytes(kept)
    (folder / "kept").write_text("here\n")
    (folder / "a_link_within").symlink_to("kept")
    assert read_page(folder, KINDS).problems == []


def test_files_of_another_version_are_named(tmp_path: Path) -> None:
    folder = ALL["run"](tmp_path / "run")
    lines = (folder / "scores.csv").read_text().splitlines()
    (folder / "scores.csv").write_text("\n".join(",".join(line.split(",")[:4]) for line in lines) + "\n1,2\n")
    (folder / "report.json").write_text("[1, 2]")
    (folder / "comparison.json").write_text("3")
    assert read_page(folder, KINDS).problems == [
        "scores.csv: found no column train_steps, reason; a run of another version, or damage",
        "scores.csv: 1 of 61 rows have another number of columns",
        "report.json: found list, expected keys and values",
        "comparison.json: found int, expected keys and values",
    ]
    (folder / "scores.csv").write_bytes(bytes(1000) + b"\n")
    assert "scores.csv: found no column generation, member" in read_page(folder, KINDS).problems[0]
    written = ALL["write"](tmp_path / "write")
    (written / "result.json").write_text('{"best": 3, "finals": {"a": 1}}')
    assert read_page(written, KINDS).problems == [
        "result.json: best: found int, expected dict",
        "result.json: finals: found dict, expected list",
    ]


def test_a_goal_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    run = ALL["goal"](tmp_path / "run")
    for name in ("scores.csv", "summary.txt"):
        (run / name).unlink(missing_ok=True)
    made = read_page(run, KINDS)
    assert made.problems == [] and made.title.startswith("reacher") and not made.verdict
