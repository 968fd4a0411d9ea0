"""Steps that a CUDA graph can replay: tested without a GPU, by what a capture forbids and what it relies on."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from envolve.agents.common.cuda_graph import EAGER_CALLS, Graphs
from envolve.agents.common.hyper import draw
from envolve.agents.common.icm import ICM
from envolve.agents.common.job import Job
from envolve.agents.common.learners import LEARNERS, off_policy_learners
from envolve.agents.common.population import initial_weights, nets_of, stack, widest
from envolve.agents.common.sections import ICMSection
from envolve.agents.off_policy.algorithm import Rows
from envolve.agents.off_policy.training import BLOCK, OffPolicy
from envolve.agents.train import algorithm
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world

TASK = {"td3": "Pendulum-v0", "sac": "Pendulum-v0"}  # the others: CartPole-v0
SMALL = dict(init_episodes=1, hidden_size=6, hidden_layer=2, batch_size=8, test_episodes=1, train_episodes=3)


def trainer(name: str, kind: str, icm: bool = False, device: str = "cpu", captured: bool = False) -> OffPolicy:
    task, env = make_task(TASK.get(name, "CartPole-v0"), max_steps=9), EnvSection(hidden_size=5, reward_env_type=2)
    keys = np.arange(3)
    hyper = draw(LEARNERS[name].section(**SMALL), keys)
    worlds = torch.zeros(3, 1) if kind == "real" else init_world(kind, task, env, torch.as_tensor(keys))
    cls = algorithm(name)
    agents = nets_of(cls, task, hyper)
    params = stack(torch.as_tensor(initial_weights(agents, keys)), agents, widest(agents)).to(device)
    job = Job(task, kind, env, worlds, hyper, keys)
    curiosity = (
        ICM(task, ICMSection(hidden_size=4, feature_dim=3), torch.as_tensor(keys, device=device)) if icm else None
    )
    agent = cls(task, hyper, widest(agents), params, torch.full((3,), 6, device=device))
    return OffPolicy(job, agent, curiosity, captured)


def step(run: OffPolicy, variant) -> None:
    draws = run.algorithm.draws(run.m.explore, 0, BLOCK)
    run.memory.make_room()
    run._step(variant, run._sample_draws()[-1], *(d[0] for d in draws))


VARIANTS = [(learning, actor) for learning in (False, True) for actor in (False, True)]


def without_values(run: OffPolicy) -> OffPolicy:
    """Its tensors move to torch's device "meta", where they have a shape and a device and no values."""

    def moved(x):
        if isinstance(x, torch.Tensor):
            return x.to("meta")
        return replace(x, **{f.name: moved(getattr(x, f.name)) for f in fields(x)})

    for owner in filter(None, (run.algorithm, run.icm, run.memory, run)):
        for name, value in list(vars(owner).items()):
            if isinstance(value, (torch.Tensor, Rows)):
                setattr(owner, name, moved(value))
    run._of_live()
    return run


@pytest.mark.parametrize("kind", ["real", "se", "rn"])
@pytest.mark.parametrize("name", off_policy_learners())
def test_the_step_reads_nothing_back(name, kind):
    """Without values every look at one (item, nonzero, a branch) raises, and so does a tensor left on the CPU."""
    run = without_values(trainer(name, kind, icm=name == "ddqn"))
    for variant in VARIANTS:
        step(run, variant)
    assert run.m.state.device.type == run.algorithm.rows.params.device.type == "meta"


def test_a_look_at_a_value_would_be_noticed(monkeypatch):
    run = without_values(trainer("ddqn", "real"))
    observe = run.world.observe
    monkeypatch.setattr(run.world, "observe", lambda state: observe(state) if bool((state > 0).any()) else None)
    with pytest.raises(RuntimeError, match="meta"):
        step(run, (True, True))


def test_a_tensor_left_on_the_cpu_would_be_noticed(monkeypatch):
    run = without_values(trainer("ddqn", "real"))
    observe = run.world.observe
    monkeypatch.setattr(run.world, "observe", lambda state: observe(state) + torch.ones(4))
    with pytest.raises(RuntimeError, match="device"):
        step(run, (True, True))


def addresses(run: OffPolicy):
    rows = [run.m, run.algorithm.rows] + ([run.icm.rows] if run.icm else [])
    tensors = {f"{type(r).__name__}.{f.name}": getattr(r, f.name) for r in rows for f in fields(r)}
    return {
        name: t.data_ptr() for name, t in {**tensors, "memory": run.memory.rows, "written": run.memory.written}.items()
    }


@pytest.mark.parametrize("name, icm", [(name, False) for name in off_policy_learners()] + [("ddqn", True)])
def test_the_step_writes_its_state_in_place(name, icm):
    """A graph reads and writes the addresses that it saw: none of the state may move."""
    run = trainer(name, "real", icm)
    before, params = addresses(run), run.algorithm.rows.params.clone()
    for variant in VARIANTS:
        run.m.episode += 1
        step(run, variant)
    assert addresses(run) == before
    assert not torch.equal(run.algorithm.rows.params, params), "the steps did learn"


def test_inputs_are_copied_into_what_was_captured(monkeypatch):
    seen = []

    def double(variant, x):
        seen.append((variant, x.data_ptr()))
        return (x * 2,)

    graphs = Graphs(double, True)
    monkeypatch.setattr(graphs, "_on_side_stream", lambda variant, inputs: double(variant, *inputs))

    def capture(variant, inputs):
        static, out = tuple(t.clone() for t in inputs), torch.zeros_like(inputs[0])
        replay = type("Graph", (), {"replay": lambda self: out.copy_(double(variant, *static)[0])})()
        graphs.captured[variant] = (replay, static, (out,))

    monkeypatch.setattr(graphs, "_capture", capture)
    for i in range(EAGER_CALLS + 3):
        for variant in ("a", "b"):
            assert graphs(variant, torch.full((2,), float(i)))[0].tolist() == [2.0 * i] * 2
    replays = [p for v, p in seen if v == "a"][EAGER_CALLS:]
    assert len(replays) == 3 and len(set(replays)) == 1
    graphs.forget()
    assert graphs("a", torch.ones(2))[0].tolist() == [2, 2] and not graphs.captured


def test_nothing_is_collected_during_a_capture(monkeypatch):
    """A graph of an earlier training, in a cycle with its ``Graphs``, would be destroyed, and CUDA forbids that."""
    collecting = []

    class Capture(contextlib.AbstractContextManager):
        def __init__(self, graph):
            pass

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    graphs = Graphs(lambda variant, x: (collecting.append(gc.isenabled()), x)[1:], True)
    graphs._capture("a", (torch.ones(1),))
    graphs.step = lambda variant: 1 / 0
    with pytest.raises(ZeroDivisionError):
        graphs._capture("b", ())
    assert collecting == [False] and gc.isenabled() and list(graphs.captured) == ["a"]


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("name", off_policy_learners())
def test_a_step_around_the_task_is_the_whole_step(name, noise, monkeypatch):
    """What a GPU does with a task that steps on the CPU, done on the CPU: the same bits."""
    runs = []
    for split in (False, True):
        run = trainer(name, "real")
        monkeypatch.setattr(run.task, "reward_noise", noise)
        run._of_live()
        run.split = split
        run.train()
        runs.append(run)
    whole, parts = runs
    assert (whole.updates > 0).all() and torch.equal(whole.updates, parts.updates)
    assert torch.equal(whole.final.rows.params, parts.final.rows.params)
    np.testing.assert_array_equal(whole.logged, parts.logged)
    assert torch.equal(whole.length, parts.length)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["td3", "sac"])
def test_a_task_on_the_cpu_is_captured_around(name, monkeypatch):
    monkeypatch.setitem(TASK, name, "Swimmer-v5")
    results = []
    for captured in (False, True):
        run = trainer(name, "real", device="cuda", captured=captured)
        run.train()
        results.append(run)
    assert results[1].learns.calls and not results[1].graphs.calls and not results[0].learns.calls
    torch.testing.assert_close(results[0].final.rows.params, results[1].final.rows.params)
    torch.testing.assert_close(results[0].logged, results[1].logged)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", off_policy_learners())
def test_captured_equals_eager(name):
    results = []
    for captured in (False, True):
        run = trainer(name, "se", device="cuda")
        run.graphs.enabled = captured
        run.train()
        results.append(run)
    assert results[1].graphs.calls or results[1].train_steps.max() <= EAGER_CALLS
    torch.testing.assert_close(results[0].final.rows.params, results[1].final.rows.params)
    assert torch.equal(results[0].train_steps, results[1].train_steps)
