"""Many candidates in one simulator: each lives as if it were alone, and a bad one is out without harm to the others."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from envolve.envs.physics.cartpole import CartPole
from envolve.envs.physics.task import Pose, Random, State
from envolve.envs.shaping import alarm
from envolve.envs.shaping import calls as shaper_calls
from envolve.envs.shaping.candidate import Candidate, Shaper
from envolve.envs.shaping.envs import ShapedEnvs, Step
from envolve.envs.shaping.schedule import Schedule
from envolve.envs.sim.simulator import make_simulator

N = 6


def candidate(
    name: str, params: Sequence[float] | None = None, size: int | None = None, **functions: Callable
) -> Candidate:
    shapers = {kind: Shaper(function, params is not None) for kind, function in functions.items()}
    return Candidate(name, shapers, size, None if params is None else torch.tensor(params))


def make(*candidates: Candidate, key: int = 3, **options: dict[str, Schedule]) -> ShapedEnvs:
    return ShapedEnvs(
        CartPole(make_simulator("mujoco", "cartpole.xml", N * len(candidates))), candidates, key, **options
    )


def play(envs: ShapedEnvs, steps: int, evaluation: bool = False) -> list[Step]:
    """The same actions for every candidate, from a generator that does not know how many there are."""
    envs.begin(evaluation)
    out = []
    for t in range(steps):
        action = torch.randn(N, 8, generator=torch.Generator().manual_seed(t))[:, : envs.action.shape[1]]
        out.append(Step(*(x.clone() for x in envs.step(action.expand(envs.P, -1, -1)))))
    return out


def same(a: list[Step], i: int, b: list[Step], j: int, envs: tuple[ShapedEnvs, ShapedEnvs]) -> bool:
    F = envs[0].observation_sizes[i]
    assert F == envs[1].observation_sizes[j]
    return all(
        torch.equal(x[i, :, :F] if x.dim() == 3 else x[i], y[j, :, :F] if y.dim() == 3 else y[j])
        for step, other in zip(a, b)
        for x, y in zip(step, other)
    )


def angle_reward(state: State) -> Tensor:
    return torch.exp(-state["pole_angle"].square() / 0.01) - 0.01 * state["action"].square().sum(1)


def short(state: State) -> Tensor:
    return torch.stack((state["pole_angle"], state["pole_angular_velocity"]), 1)


def two_thrusters(action: Tensor, state: State) -> Tensor:
    return 5 * (action[:, :1].tanh() - action[:, 1:2].tanh())


def patient(state: State) -> Tensor:
    return state["pole_angle"].abs() > 0.5


def tilted(state: State, random: Random, rest: Pose) -> Pose:
    return rest._replace(joint_position=rest.joint_position + 0.1 * random.uniform[:, :2])


def weighted(state: State, params: Tensor) -> Tensor:
    return params[:, 0] * state["cart_position"] + params[:, 1]


def leaning(state: State, random: Random, rest: Pose, params: Tensor) -> Pose:
    return rest._replace(joint_position=rest.joint_position + params * random.uniform[:, :2])


GOOD = [
    candidate("human"),
    candidate("angle", compute_reward=angle_reward),
    candidate("short", compute_observation=short, compute_terminal=patient),
    candidate("thrusters", compute_torque=two_thrusters, compute_initial_state=tilted),
    candidate("weighted 1", (1.0, 0.0), compute_reward=weighted),
    candidate("weighted 2", (0.0, 2.0), compute_reward=weighted),
    candidate("leaning", (0.05, 0.1), compute_initial_state=leaning),
]


def test_each_candidate_lives_as_if_it_were_alone() -> None:
    together = make(*GOOD)
    assert together.observation_sizes == [4, 4, 2, 4, 4, 4, 4] and together.action_sizes == [1, 1, 1, 2, 1, 1, 1]
    steps = play(together, 60)
    assert sum(int(s.terminated.sum()) for s in steps) > 10
    for i, c in enumerate(GOOD):
        alone = make(c)
        assert same(steps, i, play(alone, 60), 0, (together, alone)), c.name
    assert not together.failures


def test_candidates_are_different_worlds() -> None:
    """The test above could not fail if they were all alike."""
    last = play(make(*GOOD), 60)[-1]
    rows = [tuple(last.reward[i].tolist()) + tuple(last.last_obs[i].flatten().tolist()) for i in range(len(GOOD))]
    assert len(set(rows)) == len(GOOD)


def raises_later(state: State) -> Tensor:
    if state["progress"].max() > 10:
        raise RuntimeError("out of ideas")
    return state["pole_angle"]


def nan_later(state: State) -> Tensor:
    return torch.where(state["progress"] > 7, torch.nan, 1.0)


def wrong_shape_later(state: State) -> Tensor:
    return state["pole_angle"][: (1 if state["progress"].max() > 4 else None)]


def changes_state(state: State) -> Tensor:
    state["pole_angle"] *= 0
    return state["pole_angle"]


def changes_action(action: Tensor, state: State) -> Tensor:
    return action.mul_(10)


def infinite_effort(action: Tensor, state: State) -> Tensor:
    return action / 0


def unobservant(state: State) -> Tensor:
    return torch.full((len(state["progress"]), 3), -torch.inf)


def hangs(state: State) -> Tensor:
    while state["progress"].max() > 2:
        pass
    return state["progress"]


def hangs_at_once(action: Tensor, state: State) -> Tensor:
    while True:
        pass


def exits(state: State) -> Tensor:
    raise SystemExit("goodbye")


def sleeps(state: State) -> Tensor:
    if state["progress"].max() > 2:
        time.sleep(60)
    return state["progress"]


def naps(state: State) -> Tensor:
    time.sleep(0.12)
    return state["progress"]


def counts_on_fingers(state: State) -> Tensor:
    for _ in range(1_000_000):  # nothing that torch sees
        pass
    return state["progress"]


def a_thousand_products(state: State) -> Tensor:
    x = torch.eye(64)
    for _ in range(1000):
        x = x @ x
    return state["progress"] * x[0, 0]


def nowhere(state: State, random: Random, rest: Pose) -> Pose:
    return rest._replace(joint_position=rest.joint_position * torch.nan)


def no_pose(state: State, random: Random, rest: Pose) -> Pose:
    return rest.joint_position  # type: ignore[return-value]


BAD = {
    "RuntimeError": (candidate("bad", compute_reward=raises_later), "out of ideas in line"),
    "NotFinite": (candidate("bad", compute_reward=nan_later), "compute_reward returned nan"),
    "WrongOutput": (candidate("bad", compute_reward=wrong_shape_later), "returned shape [1], expected [6]"),
    "ChangedState": (candidate("bad", compute_reward=changes_state), "work on a copy"),
    "ChangedState of an action": (candidate("bad", compute_torque=changes_action), "compute_torque changed the state"),
    "NotFinite effort": (candidate("bad", compute_torque=infinite_effort), "compute_torque returned"),
    "NotFinite observation": (candidate("bad", compute_observation=unobservant), "compute_observation returned -inf"),
    "TooSlow": (candidate("bad", compute_reward=hangs), "was interrupted after 0.2 s of CPU time"),
    "TooSlow before the run": (candidate("bad", compute_torque=hangs_at_once), "compute_torque was interrupted after"),
    "SystemExit": (candidate("bad", compute_reward=exits), "goodbye in line"),
    "TooSlow asleep": (candidate("bad", compute_reward=sleeps), "compute_reward was interrupted after 0.5 s of sleep"),
    "TooSlow in naps": (candidate("bad", compute_reward=naps), "compute_reward was interrupted after 0.5 s of sleep"),
    "TooSlow always": (candidate("bad", compute_reward=counts_on_fingers), "ms of CPU time per step, the task's own"),
    "TooSlow by count": (candidate("bad", compute_reward=a_thousand_products), "too many operations"),
    "WrongOutput of a pose": (candidate("bad", compute_initial_state=nowhere), "not finite"),
    "WrongOutput instead of a pose": (candidate("bad", compute_initial_state=no_pose), "Tensor, expected a Pose"),
    "WrongOutput for a goal": (candidate("bad", compute_goal=lambda state, random: None), "has no goals"),
}


@functools.lru_cache(maxsize=None)
def clean_run() -> tuple[ShapedEnvs, list[Step]]:
    """What the others live through when nobody is bad."""
    envs = make(GOOD[1], GOOD[3])
    return envs, play(envs, 40)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_candidate_is_out_and_the_others_do_not_notice(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "by count" not in what:  # on a busy machine a thousand products take as long
        monkeypatch.setattr(alarm, "HANG_SECONDS", 0.2)
    monkeypatch.setattr(alarm, "SLEEP_SECONDS", 0.5)
    monkeypatch.setattr(shaper_calls, "SLOW_SECONDS", 0.004)
    monkeypatch.setattr(shaper_calls, "SLOW_FACTOR", 2.0)
    bad, said = BAD[what]
    with_it = make(GOOD[1], bad, GOOD[3])
    steps, (without, clean) = play(with_it, 40), clean_run()
    assert list(with_it.failures) == [1] and with_it.live.tolist() == [True, False, True]
    failure = with_it.failures[1]
    assert failure.kind == what.split()[0] and said in failure.reason, failure
    assert same(steps, 0, clean, 0, (with_it, without)) and same(steps, 2, clean, 1, (with_it, without))
    assert not steps[-1].reward[1].any() and not steps[-1].obs[1].any() and not steps[-1].terminated[1].any()


def test_the_traceback_is_the_candidates_own() -> None:
    envs = make(GOOD[0], BAD["RuntimeError"][0])
    play(envs, 20)
    text, step = envs.failures[1].traceback, envs.failures[1].step
    assert "in raises_later" in text and "out of ideas" in text and "shaper_calls" not in text
    assert step == 10


def test_one_of_a_group_that_fails_is_found() -> None:
    def picky(state: State, params: Tensor) -> Tensor:
        if (params == 7).any():
            raise ValueError("seven")
        return params[:, 0] + state["pole_angle"]

    group = [candidate(f"p{v:g}", (v,), compute_reward=picky) for v in (6.0, 7.0, 8.0)]
    envs = make(*group)
    reward = play(envs, 3)[-1].reward
    assert list(envs.failures) == [1] and "seven" in envs.failures[1].reason
    assert torch.allclose(reward[0] - reward[2], torch.full((N,), -2.0))


def test_a_function_that_mixes_environments_is_called_one_by_one() -> None:
    def mixing(state: State, params: Tensor) -> Tensor:
        return params[:, 0] + state["cart_velocity"].mean()

    group = [candidate("a", (0.0,), compute_reward=mixing), candidate("b", (1.0,), compute_reward=mixing)]
    together, alone = make(*group), make(group[1])
    assert same(play(together, 5), 1, play(alone, 5), 0, (together, alone))
    assert [len(g.members) for g in together.calls.groups["compute_reward"]] == [1, 1]


def test_not_being_a_number_is_not_mixing(caplog: pytest.LogCaptureFixture) -> None:
    group = [Candidate("bad", {"compute_reward": Shaper(lambda state: state["pole_angle"] * torch.nan, False)})] * 2
    with caplog.at_level("INFO"):
        envs = make(*group)
    assert "mixes" not in caplog.text and [len(g.members) for g in envs.calls.groups["compute_reward"]] == [2]


def test_neighbours_that_share_a_function_are_called_at_once() -> None:
    group = [candidate("p", (float(i), 0.0), compute_reward=weighted) for i in range(5)]
    groups = make(*group).calls.groups
    assert all([g.members for g in groups[kind]] == [range(5)] for kind in ("compute_reward", "compute_observation"))


def test_the_score_and_the_evaluation_are_the_tasks_own() -> None:
    envs = make(
        candidate("human"),
        candidate(
            "cheat", compute_terminal=lambda state: state["progress"] > 3, compute_reward=lambda s: 99 + s["progress"]
        ),
        candidate("easy", compute_initial_state=lambda state, random, rest: rest),
    )
    steps = play(envs, 80, evaluation=True)
    for step in steps:
        for x in (step.score, step.terminated, step.last_obs):
            assert torch.equal(x[0], x[1]) and torch.equal(x[0], x[2])
    assert steps[-1].terminated.any()  # and nothing was reset
    assert torch.equal(steps[-1].obs, steps[-1].last_obs)


def test_who_has_ended_is_not_simulated_and_that_changes_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def total(envs: ShapedEnvs) -> Tensor:
        ended, score = torch.zeros(2, N, dtype=torch.bool), torch.zeros(2, N, dtype=torch.float64)
        for step in play(envs, 80, evaluation=True):
            score += torch.where(ended, 0.0, step.score)
            ended |= step.terminated
        assert ended.any()
        return score

    spared, all_simulated = make(*GOOD[:2]), make(*GOOD[:2])
    monkeypatch.setattr(all_simulated, "_awake", lambda: None)
    assert torch.equal(total(spared), total(all_simulated))
    assert spared.task.sim.awake is not None and len(spared.task.sim.awake) < 2 * N
    assert all_simulated.task.sim.awake is None


def test_time_limits_are_not_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPole, "max_steps", 5)
    envs = make(GOOD[0])
    steps = play(envs, 6)
    assert steps[4].truncated.all() and not steps[4].terminated.any()
    assert not torch.equal(steps[4].last_obs, steps[4].obs)
    assert not steps[5].truncated.any() and torch.equal(steps[5].last_obs, steps[5].obs)
    assert envs.task.state["progress"].unique().tolist() == [1.0]


def test_an_observation_after_a_reset_is_that_of_the_new_episode() -> None:
    envs = make(GOOD[0])
    for step in play(envs, 80):
        over = step.terminated | step.truncated
        assert (step.obs[over].abs() <= 0.05).all()
        assert torch.equal(step.obs[~over], step.last_obs[~over])
        assert (step.last_obs[step.terminated][:, 2].abs() > 0.2).all()


def test_a_diverged_simulation_ends_the_episode_and_harms_nobody() -> None:
    envs, calm = make(GOOD[1], GOOD[1]), make(GOOD[1], GOOD[1])
    envs.begin(), calm.begin()
    envs.task.sim.qvel[N, 0] = 1e12  # of the second candidate's first environment
    action = torch.zeros(2, N, 1)
    broken, fine = envs.step(action), calm.step(action)
    assert broken.terminated[1, 0] and broken.reward[1, 0] == 0 and not envs.failures
    assert torch.equal(broken.obs[0], fine.obs[0]) and torch.equal(broken.obs[1, 1:], fine.obs[1, 1:])
    assert (broken.obs[1, 0].abs() <= 0.05).all()


def test_a_schedule_moves_a_parameter_and_spares_the_evaluation() -> None:
    envs = make(GOOD[0], schedules={"initial_range": Schedule((0, 10), ((0.0, 0.0), (0.1, 0.2)), "linear")})
    for clock, low, high in ((0, 0.0, 0.0), (5, 0.05, 0.1), (10, 0.1, 0.2), (99, 0.1, 0.2)):
        envs.set_clock(clock)
        envs.begin()
        drawn = envs.task.state["initial_range"]
        assert (drawn >= low - 1e-6).all() and (drawn <= high + 1e-6).all()
    envs.begin(evaluation=True)
    assert torch.allclose(envs.task.state["initial_range"], torch.tensor(0.05))
    with pytest.raises(ValueError, match="has no parameter 'gravitas' to schedule; it has initial_range"):
        make(GOOD[0], schedules={"gravitas": Schedule((0,), ((0, 1),))})


def test_another_key_is_another_run_and_the_same_key_the_same() -> None:
    a, b, c = (play(make(GOOD[0], key=key), 30)[-1].obs for key in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_a_candidate_may_name_more_actions_than_are_tried() -> None:
    """1,024 of them, as its file may say; its function and its agent see just as many."""

    def last_of_many(action: Tensor, state: State) -> Tensor:
        return action[:, [size - 1]].expand_as(state["torque"]) if action.shape[1] == size else action

    size = 1024
    wide = Candidate("wide", {"compute_torque": Shaper(last_of_many, False)}, size)
    envs = make(wide, candidate("own"))
    assert envs.action_sizes == [size, 1] and not envs.failures
    envs.begin()
    action = torch.zeros(2, envs.N, size)
    action[0, :, -1] = 0.5
    envs.step(action)
    assert envs.effort[: envs.N].eq(0.5).all() and not envs.failures


def test_environments_must_be_shared_equally() -> None:
    with pytest.raises(ValueError, match="7 environments for 2 candidates"):
        ShapedEnvs(CartPole(make_simulator("mujoco", "cartpole.xml", 7)), GOOD[:2], 0)


def test_staggered_episodes_reach_the_time_limit_one_by_one_and_the_same_for_every_candidate():
    def never(state: State) -> Tensor:
        return torch.zeros_like(state["pole_angle"], dtype=torch.bool)

    envs = make(candidate("a", compute_terminal=never), candidate("b", compute_terminal=never))
    limit = envs.task.max_steps
    envs.begin(staggered=True)
    assert (envs.task.state["progress"].view(2, N)[1] == torch.arange(N) * limit // N).all()
    ends: dict[int, int] = {}
    for t in range(1, limit + 1):
        for n in envs.step(torch.zeros(2, N, 1)).truncated.all(0).nonzero()[:, 0].tolist():
            ends.setdefault(n, t)
    assert ends == {n: limit - n * limit // N for n in range(N)}
    envs.begin()
    assert not envs.t.any()
