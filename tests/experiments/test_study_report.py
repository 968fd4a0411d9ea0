"""``envolve report``: what it writes where, and what it refuses. Pages: tests/outer/page; in a browser:
tests/outer/page/test_browser.py; of a study's text: tests/outer/hpo/test_study_report.py."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from envolve.experiments import study_report
from envolve.outer.hpo import report as hpo_report
from envolve.outer.hpo.importance import Importance
from tests.experiments.command import exit_code
from tests.outer.page.folders import ALL
from tests.outer.page.html import check_safe


def test_a_page_in_the_folder_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ALL["shapers"](tmp_path / "run")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    assert exit_code(study_report.main, [run, "--open"]) == 0
    page = run / "report.html"
    assert capsys.readouterr().out == f"Page: {page} (1.6 MB)\n" and opened == [page.as_uri()]
    check_safe(page.read_text())
    before = sorted(p.name for p in run.iterdir())
    (run / "candidates.json").write_text('{"task": "Cart')
    assert exit_code(study_report.main, [run]) == 0
    assert f"note: {run}: candidates.json: Unterminated string" in capsys.readouterr().err
    assert sorted(p.name for p in run.iterdir()) == before


def test_a_film_of_the_world_is_made_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("imageio", reason="imageio is not installed")
    run = ALL["run"](tmp_path / "run")
    assert exit_code(study_report.main, [run]) == 0
    hint = f"envolve report {run} --film"
    assert hint in check_safe((run / "report.html").read_text()).shown
    assert exit_code(study_report.main, [run, "--film"]) == 0
    made = (run / "world.gif").read_bytes()
    assert made and "seed 0, agent" in capsys.readouterr().out
    page = (run / "report.html").read_text()
    assert "data:image/gif;base64," in page and hint not in page
    (run / "model.pt").write_bytes(b"damaged")
    assert exit_code(study_report.main, [run, "--film"]) == 0 and (run / "world.gif").read_bytes() == made
    (run / "world.gif").unlink()
    capsys.readouterr()
    assert exit_code(study_report.main, [run, "--film"]) == 0, "a page without a film is a page"
    assert f"note: no film of {run}: {run / 'model.pt'}" in capsys.readouterr().err


def test_several_runs_go_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [ALL["goal"](tmp_path / "a"), ALL["goal"](tmp_path / "b")]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert exit_code(study_report.main, runs) == 0
    assert "2 runs side by side" in check_safe(Path("report.html").read_text()).shown
    assert not (runs[0] / "report.html").exists()


@pytest.mark.parametrize(
    "words,said",
    [
        ([], "FOLDER: found nothing, expected the folder of a run"),
        (["RUN", "--watch", "--text"], "--watch: found with --text, expected one of the two"),
        (["RUN", "--port", "99999"], "--port: found 99999, expected 0 to 65535"),
        (["RUN", "--text"], "results.json: found no such file, expected the folder of a study"),
        (["RUN", "nowhere"], "nowhere: found no such folder, expected the folder of a run"),
        (["RUN", "--out", "RUN/candidates.json"], "candidates.json: File exists"),
    ],
)
def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    run = ALL["shapers"](tmp_path / "run")
    assert exit_code(study_report.main, [word.replace("RUN", str(run)) for word in words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not (run / "report.html").exists()


def test_several_studies_have_folders_of_their_own_in_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes seconds: what each file of a study says, tests/outer/hpo/test_study_report.py looks at."""
    monkeypatch.setattr(hpo_report, "importance_of", lambda *_: Importance(reason="not asked for"))
    for picture in ("parallel_coordinates", "budget_loss", "importance_bars"):
        monkeypatch.setattr(hpo_report.pictures, picture, lambda *_: None)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    runs = [ALL["study"](tmp_path / name / "run") for name in ("a", "b")]
    out = tmp_path / "out"
    assert exit_code(study_report.main, [*runs, "--out", out, "--text"]) == 0
    found = sorted(str(p.relative_to(out)) for p in out.rglob("summary.txt"))
    assert found == ["1_run/summary.txt", "2_run/summary.txt"]
