"""Candidates in one environment of mjlab's kind, with a stand-in for mjlab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from envolve.agents.shaped.training import evaluate
from envolve.envs.managers import library
from envolve.envs.managers.envs import ManagedEnvs, make_managed_envs
from envolve.envs.managers.guard import read_dump
from envolve.envs.managers.mjlab import MJLAB
from envolve.envs.physics.task import Pose
from envolve.envs.shaping.candidate import Candidate, Shaper, load_candidate
from envolve.envs.shaping.term_file import term_text
from envolve.envs.sim.simulator import SimulatorError
from tests.envs.managers import fake

N = 3


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MJLAB, "load", fake.Registry)


def make(candidates: list[Candidate], keys: list[int] | None = None, n: int = N) -> ManagedEnvs:
    return make_managed_envs(fake.TASK, candidates, n, keys or [7] * len(candidates), make=fake.Environment)


def numbers(**terms: float) -> Candidate:
    """A candidate that changes numbers; __ stands for a dot."""
    named = {name.replace("__", "."): value for name, value in terms.items()}
    return Candidate("numbers", {}, params=torch.tensor(list(named.values())), term_names=tuple(named))


def rewarding(function: Any) -> Candidate:
    return Candidate("rewarding", {"compute_reward": Shaper(function, False)})


MISTAKES = ("raises", "nan", "shape", "changes", "ends at once")


def mistaken(mistake: str) -> Candidate:
    """A candidate with one of ``MISTAKES``; only one that ends its episodes at once does not fail."""

    def bad(state: dict[str, Tensor]) -> Any:
        if mistake == "raises":
            return state["no_such_name"]
        if mistake == "changes":
            state["own_reward"].zero_()
        return {"nan": state["own_reward"] * torch.nan, "shape": torch.zeros(1)}.get(mistake, state["own_reward"] + 0)

    candidate = rewarding(bad)
    if mistake == "ends at once":
        candidate.shapers["compute_terminal"] = Shaper(lambda state: state["own_reward"] < torch.inf, False)
    return candidate


def play(envs: ManagedEnvs, steps: int = 40, size: float = 2.0) -> dict[str, Tensor]:
    """Everything that candidates saw, [steps, P, ...]."""
    envs.begin(staggered=True)
    found: dict[str, list[Tensor]] = {}
    for k in range(steps):
        drawn = torch.randn(1, envs.N, 1, generator=torch.Generator().manual_seed(k))
        step = envs.step(size * drawn.repeat(envs.P, 1, 1))
        for name, value in step._asdict().items():
            found.setdefault(name, []).append(value.clone())
    return {name: torch.stack(values) for name, values in found.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor], i: int, j: int) -> bool:
    return all(torch.equal(a[name][:, i], b[name][:, j]) for name in a)


def test_a_candidate_has_the_same_bits_alone_and_among_others() -> None:
    together = play(make([Candidate("a"), Candidate("b"), Candidate("c")], [7, 8, 7]))
    envs = make([Candidate("b")], [8])
    alone = play(envs)
    envs.task.sim.close()  # as of every simulator
    assert (together["terminated"] | together["truncated"]).any(0).all(), "every environment began anew"
    assert same(together, together, 0, 2)
    assert same(together, alone, 1, 0)
    assert not same(together, together, 0, 1)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_one_candidate_does_changes_no_bit_of_the_others(mistake: str) -> None:
    middle = mistaken(mistake)
    good = play(make([Candidate("a"), Candidate("b"), Candidate("c")]))
    envs = make([Candidate("a"), middle, Candidate("c")])
    other = play(envs)
    assert set(envs.failures) == ({1} if mistake != "ends at once" else set())
    assert same(good, other, 0, 0) and same(good, other, 2, 2) and not same(good, other, 1, 1)


def test_a_state_that_the_task_has_not_is_named() -> None:
    envs = make([rewarding(lambda state: state["torso_height"])])
    play(envs, 1)
    assert "torso_height" in envs.failures[0].reason and "KeyError" == envs.failures[0].kind


def test_numbers_are_each_candidates_own_and_the_score_is_the_tasks() -> None:
    alone = {
        name: play(make([candidate]))
        for name, candidate in (
            ("heavy", numbers(rewards__near__weight=5.0)),
            ("wide", numbers(rewards__near__std=1.0)),
        )
    }
    own = play(make([Candidate("own")]))
    envs = make([numbers(rewards__near__weight=5.0), Candidate("own"), numbers(rewards__near__std=1.0)])
    together = play(envs)
    assert same(together, own, 1, 0) and same(together, alone["heavy"], 0, 0) and same(together, alone["wide"], 2, 0)
    for i in (0, 2):
        assert torch.equal(together["score"][:, i], own["score"][:, 0]), "the same motion is worth the same"
        assert not torch.equal(together["reward"][:, i], own["reward"][:, 0])
    state, dt = envs.task.state, 0.05
    rows = slice(0, N)
    parts = 5.0 * state["term_near"] + 0.1 * state["term_slow"] + 0.3 * state["term_steady"]
    torch.testing.assert_close(together["reward"][-1, 0], (parts * dt)[rows])


@pytest.mark.parametrize("path", ["rewards.near.std", "rewards.slow.limit", "rewards.steady.share"])
def test_numbers_for_many_are_those_for_one(path: str) -> None:
    """A call with a number per environment, or one for each number: the term decides which it takes."""
    values = [0.3, 0.45, 0.9]
    candidates = [Candidate("n", {}, params=torch.tensor([v]), term_names=(path,)) for v in values]
    together = play(make(candidates))
    for i, candidate in enumerate(candidates):
        alone = play(make([candidate]))
        torch.testing.assert_close(together["reward"][:, i], alone["reward"][:, 0])


def test_an_unused_term_can_be_used() -> None:
    envs = make([numbers(rewards__unused__weight=1.0), Candidate("own")])
    found = play(envs)
    extra = found["reward"][-1, 0] - found["reward"][-1, 1]
    torch.testing.assert_close(extra, 0.05 * envs.task.state["term_unused"][:N], atol=1e-6, rtol=1e-5)


def test_ends_starts_commands_and_actions_can_be_changed_in_training_but_not_in_the_evaluation() -> None:
    changes = {
        "terminations.far.limit": 0.2,
        "events.put.position.0": 0.45,
        "commands.goal.ranges.target.0": 0.9,
        "actions.force.scale": 3.0,
    }
    for path, value in changes.items():
        changed = Candidate("n", {}, params=torch.tensor([value]), term_names=(path,))
        envs = make([changed, Candidate("own")])
        found = play(envs)
        assert not same(found, found, 0, 1), path
        a, b = envs.begin(evaluation=True)
        assert torch.equal(a, b), f"{path}: evaluation begins as the task says"
        step = envs.step(torch.zeros(2, N, 1))
        assert torch.equal(step.score[0], step.score[1]) or path.startswith("actions"), path


def test_a_candidate_places_commands_and_begins() -> None:
    def begin(state: Any, random: Any, rest: Pose) -> Pose:
        return Pose(rest.root_state, rest.joint_position + 0.25, rest.joint_velocity)

    candidate = Candidate(
        "c",
        {
            "compute_initial_state": Shaper(begin, False),
            "compute_goal": Shaper(lambda state, random: 0 * random.uniform[:, :1] + 0.75, False),
        },
    )
    envs = make([candidate, Candidate("own")])
    envs.begin()
    assert (envs.task.state["point_joint_pos"][:N] == 0.25).all()
    assert (envs.task.state["command_goal"][:N] == 0.75).all()
    play(envs, 20)
    assert (envs.task.state["command_goal"][:N] == 0.75).all() and not envs.failures
    assert not (envs.task.state["command_goal"][N:] == 0.75).any()


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_simulation_that_blows_up_is_worth_nothing_and_is_kept(evaluation: bool, tmp_path: Path) -> None:
    wild = Candidate("wild", {"compute_torque": Shaper(lambda action, state: action * 1e9, False)})
    envs = make([Candidate("a"), wild, Candidate("c")])
    envs.begin(evaluation=evaluation)
    steps = [envs.step(torch.ones(3, N, 1)) for _ in range(1)]
    assert steps[0].terminated[1].all() and not steps[0].terminated[0].any()
    assert (steps[0].score[1] == 0).all() and (steps[0].score[0] != 0).all()
    (dump,) = envs.dumps
    assert dump.candidate == "wild" and dump.evaluation == evaluation
    (tmp_path / "d.pt").write_bytes(dump.content())
    again = read_dump(tmp_path / "d.pt")
    assert again.task == "mjlab:" + fake.TASK and abs(again.qvel[-1]).max() > 1e6 and len(again.steps) == 1


def test_an_episode_that_diverges_loses_what_it_had_earned() -> None:
    def late(action: Tensor, state: dict[str, Tensor]) -> Tensor:
        return torch.where(state["progress"][:, None] > 3, 1e9, 0.0)

    envs = make([Candidate("late", {"compute_torque": Shaper(late, False)})])
    envs.begin(evaluation=True)
    total, ended = torch.zeros(1, N, dtype=torch.float64), torch.zeros(1, N, dtype=torch.bool)
    for _ in range(8):
        step = envs.step(torch.zeros(1, N, 1))
        total += torch.where(ended, 0.0, step.score)
        ended |= step.terminated
    assert ended.all() and (total <= 1e-9).all()


def test_the_score_is_the_first_episodes_where_a_term_truncates_early(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        def act(self, obs: Tensor) -> Tensor:
            return torch.zeros(1, N, 1)

    def bounded() -> Any:
        cfg = whole()
        cfg.terminations["left"] = fake.Term(lambda env: env.episode_length_buf >= 3, time_out=True)
        return cfg

    whole = fake.configuration
    monkeypatch.setattr(fake, "configuration", bounded)
    envs = make([Candidate("own")])
    score = evaluate(envs, Idle())  # type: ignore[arg-type]
    envs.begin(evaluation=True)
    earned = sum(envs.step(torch.zeros(1, N, 1)).score.clone() for _ in range(3))
    torch.testing.assert_close(score, earned / envs.task.max_steps)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no zip"])
def test_a_file_that_is_no_dump_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "d.pt").write_bytes(content)
    with pytest.raises(ValueError, match="not a dump") as e:
        read_dump(tmp_path / "d.pt")
    assert "\n" not in str(e.value)


# ------------------------------------------------------------------------------------------------------------- messages


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(SimulatorError, match="nearest: 'Fake-Point'"):
        make_managed_envs("mjlab:fake-pint", [Candidate("a")], 1, 0)


def test_a_term_that_does_not_exist_names_the_nearest() -> None:
    envs = make([numbers(rewards__nearr__weight=1.0), Candidate("own")])
    assert "did you mean 'rewards.near.weight'" in envs.failures[0].reason
    assert set(envs.failures) == {0}


def test_mjlab_missing_and_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(library.importlib.metadata, "version", lambda name: "2.0.1")
    with pytest.raises(SimulatorError, match=r"found mjlab 2.0.1, expected 1\.6\.\*: make setup-mjlab"):
        MJLAB.load()

    def missing(name: str) -> str:
        raise library.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(library.importlib.metadata, "version", missing)
    with pytest.raises(SimulatorError, match="mjlab is not installed in this Python environment: make setup-mjlab"):
        MJLAB.load()


@pytest.mark.parametrize(
    "text, words",
    [
        ("[]", "expected the keys"),
        ("{", "not JSON"),
        ('{"envolve_terms": 2, "task": "t", "numbers": {"a": 1}}', "expected 1"),
        ('{"envolve_terms": 1, "task": "t", "numbers": {}}', "with 1 to"),
        ('{"envolve_terms": 1, "task": "t", "numbers": {"a": "b"}}', "expected a finite number"),
        ('{"envolve_terms": 1, "task": "t", "numbers": {"a": NaN}}', "NaN is no number"),
        ('{"envolve_terms": 1, "task": "t", "numbers": {"a": true}}', "expected a finite number"),
        ('{"envolve_terms": 1, "task": ["t"], "numbers": {"a": 1}}', "task: found ['t'], expected the name of a task"),
    ],
)
def test_a_wrong_file_of_terms_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.terms.json"
    path.write_text(text)
    failure = load_candidate(path).failure
    assert (
        failure is not None and failure.kind == "CannotLoad" and words in failure.reason and "\n" not in failure.reason
    )


def test_numbers_of_another_task_are_used_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.terms.json"
    for named, lines in (("mjlab:" + fake.TASK, 0), (fake.TASK.lower(), 0), ("Mjlab-Other-Robot", 1)):
        path.write_text(term_text(named, {"rewards.near.weight": 5.0}))
        caplog.clear()
        for _ in range(2):
            assert not make([load_candidate(path)]).failures
        assert len(caplog.messages) == lines
    (line,) = caplog.messages
    assert line.startswith(f"{path}: made for the task Mjlab-Other-Robot, used for mjlab:{fake.TASK}: ")


def test_python_files_may_have_terms_and_params(tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(
        'PARAMS = {"a": 2.0}\nTERMS = {"rewards.near.weight": 5.0}\n\n\n'
        "def compute_reward(state, params):\n    return state['own_reward'] * params[:, 0]\n"
    )
    candidate = load_candidate(path)
    assert candidate.failure is None and candidate.param_names == ("a", "rewards.near.weight")
    found = play(make([candidate, numbers(rewards__near__weight=5.0)]))
    torch.testing.assert_close(found["reward"][:, 0], 2 * found["reward"][:, 1])
    moved = candidate.with_params(torch.tensor([1.0, 2.0]))
    found = play(make([moved, Candidate("own")]))
    torch.testing.assert_close(found["reward"][:, 0], found["reward"][:, 1])
