"""What a user sees: the table, TensorBoard events, the closing summary and the picture."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from outer.plots import learning_curve
from outer.report import GenerationRow, LiveTable, RunSummary, TensorBoard, duration, number, summary_text
from outer.scores import CurvePoint
from outer.statistics import AgentRuns

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


def test_tensorboard_events_can_be_read_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

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


def run_summary(**changes: object) -> RunSummary:
    values: dict = dict(kind="se", env_name="CartPole-v0", solved=True, generations=43, seconds=28.4)
    values |= dict(total_steps=4_123_456, run_dir="results/x", solved_reward=195.0)
    return RunSummary(**(values | changes))


def test_summary_of_a_solved_world(tmp_path: Path) -> None:
    for name in ("model.pt", "config.yaml", "events.out.tfevents.1.host"):
        (tmp_path / name).touch()
    text = summary_text(
        run_summary(
            run_dir=str(tmp_path),
            restarts=1,
            proxy=AgentRuns([198.0] * 20, [800.0] * 20),
            real=AgentRuns([190.0] * 20, [14_000.0] * 20),
        )
    )
    assert text.splitlines()[:2] == [
        "CartPole-v0, synthetic environment: SOLVED (mean return of at least 195.0)",
        "  43 generations, 1 restart, 28 s, 4,123,456 environment steps of all agents together",
    ]
    words = " ".join(text.split())
    assert "training steps needed 800.0 [800.0, 800.0] 14,000 [14,000, 14,000]" in words
    assert "test return, real task 198.0 [198.0, 198.0] 190.0 [190.0, 190.0]" in words
    assert "number of agents 20 20" in words and "95 % bootstrap interval" in words and "17.5 times fewer" in words
    assert "model.pt the evolved world config.yaml" in words and f"tensorboard --logdir {tmp_path}" in words
    assert "scores.csv" not in words  # only what is there
    assert text.endswith(f"experiments/evaluate_proxy.py {tmp_path}/model.pt --agent ddqn --num-agents 20")
    assert "another seed" not in text and "failed" not in text


def test_summary_of_an_unsolved_world_without_comparison() -> None:
    text = summary_text(run_summary(kind="rn", env_name="Cliff", solved=False, seconds=328.0, solved_reward=None))
    assert text.startswith("Cliff, reward network: NOT SOLVED\n") and "5.5 minutes" in text
    assert "--seed" in text and "trained" not in text and "Written" not in text


def test_summary_with_one_comparison_only() -> None:
    text = summary_text(run_summary(proxy=AgentRuns([1.0, 2.0], [10.0, 20.0])))
    assert "in the evolved world" in text and "in the real task" not in text and "fewer" not in text


def test_summary_says_what_became_of_failed_agents() -> None:
    failing = AgentRuns([100.0, 100.0, NAN], [50.0, 50.0, 1.0])
    left_out = summary_text(run_summary(proxy=failing))
    assert "1 of 3 agents trained in the evolved world failed and are left out." in left_out
    assert "100.0 [100.0, 100.0]" in left_out and "50.0 [50.0, 50.0]" in left_out
    counted = summary_text(run_summary(proxy=failing, failed_return=-500.0))
    assert "failed and are counted with a return of -500.0." in counted and "-100.0 [" in counted
    nothing = summary_text(run_summary(proxy=AgentRuns([NAN], [1.0])))
    assert "1 of 1 agents" in nothing


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
