"""What a user sees: the table, TensorBoard events and the picture; the closing words are in test_summary.py."""

from __future__ import annotations

import io
import json
import math
import time
import warnings
from pathlib import Path

import pytest
from rich.console import Console

import envolve.outer.reporting.plots
from envolve.agents.common.compiling import CompilingProgress
from envolve.core.statistics import AgentRuns
from envolve.outer.reporting.display import CompilingWatch
from envolve.outer.reporting.plots import learning_curve
from envolve.outer.reporting.report import GenerationRow, LiveTable, TensorBoard, duration, number
from envolve.outer.reporting.scores import CurvePoint

NAN = float("nan")


def row(generation: int, **changes: float) -> GenerationRow:
    values = dict(score_mean=12.25, score_best=195.0, real_return=11.5, train_steps=812.0, episode_length=57.25)
    values |= dict(failed=0, member_steps=40_000, seconds=0.5)
    return GenerationRow(generation, **(values | changes))  # type: ignore[arg-type]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "value, text",
    [(0.0, "0.0"), (0.12345, "0.123"), (12.34, "12.3"), (-195.0, "-195.0"), (6404.4, "6,404"), (NAN, "-")],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("seconds, text", [(0.4, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}])
def test_a_file_gets_one_plain_line_per_generation(environment: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    out = io.StringIO()
    with LiveTable(20, "CartPole-v0 [se]", Console(file=out, width=40)) as table:
        table.update(row(9))
        table.note("restart: [world] collapsed")
        table.update(row(10, failed=2, score_best=NAN))
    title, first, note, second = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert (title, note) == ("CartPole-v0 [se]", "note: restart: [world] collapsed")
    # two generations of half a second: ten more take five seconds
    assert first.startswith("generation  9/20  score 12.2  best 195.0  real return 11.5  train steps 812.0  episode")
    assert "80,000 member-steps/s" in first and "failed" not in first
    assert "generation 10/20" in second and "best -" in second and "failed 2" in second and second.endswith("ETA 0:05")


def test_a_terminal_gets_a_table_of_the_last_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with LiveTable(200, "CartPole-v0", console) as table:
        for generation in range(101, 113):
            table.update(row(generation))
        table.note("restart: world collapsed")
    last = out.getvalue().split("CartPole-v0")[-1]  # what stays on the screen
    assert "generation 112/200" in last and "ETA 0:44" in last and "note: restart: world collapsed" in last
    assert [g for g in range(101, 113) if f" {g} " in last] == list(range(105, 113))
    assert "80,000" in last and "57.2" in last


def test_the_eta_leaves_out_the_first_generation_and_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first generation of two minutes, 200 to come: no promise of seven hours."""
    out = io.StringIO()
    with LiveTable(200, "CartPole-v0", Console(file=out), ends_early=True) as table:
        table.update(row(1, seconds=138.0))
        assert "ETA" not in out.getvalue()
        table.update(row(2, seconds=2.0))
        monkeypatch.setattr(table.waits, "seen", lambda: True)  # another learner's kernels
        table.update(row(3, seconds=60.0))
        monkeypatch.setattr(table.waits, "seen", lambda: False)
        table.update(row(4, seconds=2.5))
        table.update(row(200, seconds=2.5))
    lines = [line.split("  ")[-1] for line in out.getvalue().splitlines()[2:]]
    assert lines == ["ETA at most 6:36", "ETA at most 6:34", "ETA at most 7:21", "ETA 0:00"]


def test_what_is_compiled_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the place of the ETA in a terminal, as lines in a file; for this process or those that it started alone."""
    monkeypatch.setenv("ENVOLVE_CACHE", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(CompilingWatch, "LOOK", 0.01)
    others = tmp_path / "compiling" / "1.json"
    others.parent.mkdir()
    state = {"name": "crl", "left": 1, "total": 1, "since": 0.0, "waits": False, "pid": 1, "parent": 1}
    others.write_text(json.dumps(state))
    for out, kind in ((io.StringIO(), {}), (Terminal(), {"force_terminal": True, "width": 100, "color_system": None})):
        with LiveTable(5, "Cliff", Console(file=out, **kind)) as table, CompilingProgress("ddqn") as progress:  # type: ignore
            progress.of(2)
            progress.done()
            while not table.waits.text:
                time.sleep(0.01)
            while table.waits.text.find("1 of 2") < 0:
                time.sleep(0.01)
            if table.live:
                table.live.refresh()
            table.update(row(1))
            assert not table.pace
        assert "compiling ddqn: 1 of 2 kernels left, " in out.getvalue() or not table.live
        assert "compiling ddqn: " in out.getvalue() and "crl" not in out.getvalue()


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    with LiveTable(5, "Cliff", Console(file=out)) as table:
        table.update(row(1))
    assert "\x1b" not in out.getvalue() and out.getvalue().count("\n") == 2


def test_the_table_lets_an_interrupt_through_and_restores_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with pytest.raises(KeyboardInterrupt), LiveTable(5, "Cliff", Console(file=out, force_terminal=True)) as table:
        table.update(row(1))
        raise KeyboardInterrupt
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")  # the cursor is shown again


def test_tensorboard_events_can_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer.event_file_writer import AtomicCounter

    # files of one second are read in the order of their names, which end in this process's count: 10 before 9
    monkeypatch.setattr("tensorboard.summary.writer.event_file_writer._global_uid", AtomicCounter(0))
    TensorBoard(tmp_path / "none").close()
    assert not (tmp_path / "none").exists()  # nothing is imported or written before the first generation
    board = TensorBoard(tmp_path)
    for generation in (1, 2, 3):
        board.write(row(generation, score_mean=10.0 * generation))
    board.close()
    resumed = TensorBoard(tmp_path, purge_generation=3)
    resumed.write(row(3, score_mean=99.0))
    resumed.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("score_mean")] == [(1, 10.0), (2, 20.0), (3, 99.0)]
    assert {"score_best", "real_return", "train_steps", "failed", "member_steps_per_second"} <= set(
        events.Tags()["scalars"]
    )


def size_of_png(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_learning_curve_with_comparison_is_twice_as_wide(tmp_path: Path) -> None:
    points = [CurvePoint(g, 4.0 * g, 3.0 * g, 5.0 * g, g == 2) for g in range(1, 6)]
    runs = AgentRuns([198.0, 199.0, NAN], [800.0, 810.0, 5.0]), AgentRuns([190.0, 180.0], [14_000.0, 12_000.0])
    learning_curve(tmp_path / "one.png", points, "CartPole-v0", 195.0)
    learning_curve(tmp_path / "two.png", points, "CartPole-v0", 195.0, runs, restarts=(3,))
    (w1, h1), (w2, h2) = size_of_png(tmp_path / "one.png"), size_of_png(tmp_path / "two.png")
    assert (w2, h2) == (2 * w1, h1)


@pytest.mark.parametrize(
    "points", [[], [CurvePoint(1, 5.0, 1.0, 9.0, 0)], [CurvePoint(g, math.nan, math.nan, math.nan, 4) for g in (1, 2)]]
)
def test_learning_curve_of_next_to_nothing(points: list[CurvePoint], tmp_path: Path) -> None:
    """Ctrl-C in the first generation, or nothing but failed members, still leaves a picture."""
    runs = AgentRuns([NAN], [1.0]), AgentRuns()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learning_curve(tmp_path / "c.png", points, "Cliff", None, runs)
    size_of_png(tmp_path / "c.png")


def figure_of(monkeypatch: pytest.MonkeyPatch, *args: object, **more: object) -> list:
    """The panels that ``learning_curve`` draws."""
    made = []
    inner = envolve.outer.reporting.plots.new_figure

    def kept(*size: object) -> object:
        made.append(inner(*size))
        return made[-1]

    monkeypatch.setattr(envolve.outer.reporting.plots, "new_figure", kept)
    learning_curve(*args, **more)  # type: ignore[arg-type]
    return made[-1][1]


def test_a_few_bad_members_do_not_flatten_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [CurvePoint(g, -60.0 + g, -7000.0 if g == 3 else -90.0, -50.0, 0) for g in range(1, 21)]
    ax = figure_of(monkeypatch, tmp_path / "c.png", points, "Cliff")[0]
    bottom = ax.get_ylim()[0]
    assert -400 < bottom < -90 and any("cut at" in t.get_text() for t in ax.get_legend().get_texts())
    points[0] = CurvePoint(1, -7000.0, -7000.0, -50.0, 0)
    ax = figure_of(monkeypatch, tmp_path / "c.png", points, "Cliff")[0]
    assert ax.get_ylim()[0] <= -7000, "the mean itself is always shown"


def test_the_picture_of_a_shaper_run_speaks_of_shapers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And agents that all train equally long are no axis of steps around one value."""
    points = [CurvePoint(g, 4.0 * g, 3.0 * g, 5.0 * g, 0) for g in range(1, 6)]
    runs = AgentRuns([1.0, 2.0, 3.0], [500.0] * 3), AgentRuns([0.5, 0.7, 0.9], [500.0] * 3)
    words = {"ylabel": "score, m/s", "shaper": True}
    left, right = figure_of(monkeypatch, tmp_path / "c.png", points, "Ant", None, runs, **words)
    ticks = [t.get_text() for t in right.get_xticklabels()]
    assert ticks == ["with the evolved shaper", "with the human's shapers"]
    assert right.get_xlabel() == "all after 500 training steps" and right.get_ylabel() == "score, m/s"
    words = [left.get_title(), *(t.get_text() for ax in (left, right) for t in ax.get_legend().get_texts())]
    assert not any("world" in w or "real task" in w for w in words)
