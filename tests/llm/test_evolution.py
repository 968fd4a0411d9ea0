"""The loop: what is asked, vetted, trained, tuned and tested, and that a resumed run ends as an uninterrupted one."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from envolve.agents.shaped.halving import Training
from envolve.agents.shaped.training import default_section
from envolve.envs.graph.file import GraphFile
from envolve.envs.physics.cartpole import CartPole
from envolve.llm.evolution import Evolution
from envolve.llm.finals import verdicts
from envolve.llm.models.chat import Budget, make_chat
from envolve.llm.search.archive import Archive
from envolve.llm.search.greedy import Greedy
from envolve.llm.search.individual import CALL, HUMAN, IMPROVE, INITIAL, NOVELTY
from envolve.llm.search.prompts import Brief
from envolve.llm.settings import Settings
from envolve.llm.tune import TuneSettings
from envolve.llm.vetting.vet import Rejection, Vetted

SECTION = dataclasses.replace(default_section("ppo"), hidden_size=8, rollout_steps=8, ppo_epochs=1, minibatches=2)
TRAINING = Training("Cartpole", "ppo", SECTION, 8, 4)


def graph_file(op: str, weight: float) -> GraphFile:
    """weight * op(pole_angle) + cart_velocity, its weight lifted."""
    nodes = [
        {"op": f"aten.{op}.default", "args": [{"in": 0}]},
        {"op": "aten.mul.Tensor", "args": [{"node": 0}, {"param": 0}]},
        {"op": "aten.add.Tensor", "args": [{"node": 1}, {"in": 1}]},
    ]
    inputs = ["pole_angle", "cart_velocity"]
    graph = {"inputs": inputs, "nodes": nodes, "outputs": [{"node": 2}], "names": ["total"]}
    params = [{"name": "weight", "value": weight, "scale": abs(weight)}]
    functions = {"compute_reward": graph}
    content = {"envolve_graph": 1, "task": "Cartpole", "action_size": None, "params": params, "functions": functions}
    return GraphFile(content)


class FakeVetter:
    """A reply "cos 2" is a graph, any other is refused."""

    def __init__(self):
        self.seen = []

    def vet_all(self, replies):
        return [self.vet(reply) for reply, _ in replies]

    def vet(self, reply):
        self.seen.append(reply)
        op, _, weight = reply.partition(" ")
        if not weight:
            return Rejection("", "extract", "no code", 0.0)
        return Vetted(f"# {reply}", graph_file(op, float(weight)), 0.0)


class Watched:
    def __init__(self):
        self.events = []

    def __getattr__(self, name):
        return lambda *args: self.events.append((name, *args))


def recording(path, replies):
    path.write_text("".join(json.dumps({"reply": r}) + "\n" for r in replies))
    return f"replay:{path}"


REPLIES = ["cos 2", "nonsense", "sin 1", "cos 2", "cos -3", "exp 1"]


def evolve(folder, llm, iterations=2, samples=3, **settings):
    folder.mkdir(exist_ok=True)
    with make_chat([llm], record=folder / "calls.jsonl", budget=Budget()) as chat:
        search = Greedy(Brief(CartPole, "balance", ("compute_reward",)), samples, chat.models)
        defaults = {"training": TRAINING, "seed": 0, "retest": 2, "novelty": 2.0, "finalists": 1}
        s = Settings(**{"iterations": iterations, **defaults, **settings})
        evolution = Evolution(s, folder, search, chat, FakeVetter(), Watched())
        return evolution, evolution.run()


def test_an_evolution(tmp_path):
    evolution, result = evolve(tmp_path / "run", recording(tmp_path / "r.jsonl", REPLIES))
    a, b, c, d, e, f = result.individuals
    assert [i.id for i in result.individuals] == [i.call for i in result.individuals] == [0, 1, 2, 3, 4, 5]
    assert [i.operator for i in result.individuals] == [INITIAL] * 3 + [IMPROVE] * 3
    assert b.rejection == ("extract", "no code") and not b.ok and b.steps == 0
    best = max((a, c), key=lambda i: i.score)
    assert d.parents == (best.id,) and a.steps == 8 * 8 * 4 and result.steps == 5 * a.steps
    assert all(i.ok and i.interval and i.curves["score"] and i.curves["reward"] for i in (a, c, d, e, f))
    assert d.score == a.score  # the same code, the same random numbers
    assert result.human.ok and result.human.operator == HUMAN and result.human.steps == a.steps
    assert verdicts(result.individuals) == {"trained": 5, "extract": 1}
    # the last test: fresh agents, of which the best's and the human's are named
    assert len(result.finals) == 2 and result.best is not None and result.best.individual.operator != HUMAN
    assert len(result.best.individual.agent_scores) == 2 and result.best.individual.score != a.score
    assert result.fresh == [], "of one finalist there is nothing to choose"
    assert sorted(result.numbers) == [0, 1] and result.halved is not None
    names = [name for name, *_ in evolution.watcher.events]
    assert names.count("asking") == names.count("finished") == 2 and names.count("training") == 2 * 4


def test_a_killed_run_goes_on_to_the_same_end(tmp_path, remembered):
    llm, kinds = recording(tmp_path / "r.jsonl", REPLIES), dict(tune=TuneSettings(generations=2, population=3))
    _, whole = evolve(tmp_path / "whole", llm, **kinds)
    cut = tmp_path / "cut"
    evolve(cut, llm, iterations=1, **kinds)
    archive = (cut / "individuals.jsonl").read_bytes()
    (cut / "individuals.jsonl").write_bytes(archive + b'{"id": 3, "iter')  # killed in the middle of a line
    evolution, again = evolve(cut, llm, **kinds)
    assert evolution.asking.vetter.seen == REPLIES[3:]  # the first three were known
    assert again.best is not None and whole.best is not None
    assert json.dumps(again.best.individual.to_json()) == json.dumps(whole.best.individual.to_json())
    assert [i.to_json() for i in again.individuals] == [i.to_json() for i in whole.individuals]
    assert len(Archive(cut / "individuals.jsonl").load()) == 7


def test_tuning_moves_the_numbers_and_the_last_test_decides(tmp_path, remembered):
    s = TuneSettings(generations=2, population=5)
    _, result = evolve(tmp_path / "run", recording(tmp_path / "r.jsonl", REPLIES), tune=s, tune_top=2, finalists=3)
    assert len(result.tunings) == 2 and len(result.finals) == 6
    for number, tuned in result.tunings.items():
        assert tuned.steps == 2 * 5 * 256 and result.individuals[number].steps == 256 + tuned.steps
    moved = [f.individual for f in result.finals if f.individual.tuned]
    assert len(moved) == 2
    for individual in moved:
        written = result.individuals[individual.id].graph_file["params"][0]["value"]
        value = individual.graph_file["params"][0]["value"]
        assert individual.tuned == {"weight": value} and value != written
    scores = [f.individual.score for f in result.finals]
    assert scores == sorted(scores, reverse=True)
    best, human = (f.individual for f in result.fresh)
    assert result.best is not None and (best.id, best.tuned) == (
        result.best.individual.id,
        result.best.individual.tuned,
    )
    assert human.operator == HUMAN and len(best.agent_scores) == len(result.best.individual.agent_scores)
    assert best.score != result.best.individual.score, "agents that did not choose it"


def test_copies_are_not_trained(tmp_path, remembered):
    _, result = evolve(tmp_path / "run", recording(tmp_path / "r.jsonl", REPLIES), novelty=1.0)
    copy = result.individuals[3]
    assert copy.rejection is not None and copy.rejection[0] == NOVELTY and copy.steps == 0
    assert "attempt 0" in copy.rejection[1] and result.individuals[4].ok  # another number is another candidate ...
    tune = TuneSettings(generations=1, population=3)
    _, tuned = evolve(tmp_path / "tuned", recording(tmp_path / "r.jsonl", REPLIES), novelty=1.0, tune=tune)
    assert tuned.individuals[4].rejection is not None  # ... but not where numbers are tuned


def test_the_end_of_a_recording_ends_the_run(tmp_path, remembered):
    evolution, result = evolve(tmp_path / "run", recording(tmp_path / "r.jsonl", REPLIES[:4]), iterations=5)
    assert "4 replies" in result.stopped and len(result.individuals) == 6
    assert [i.rejection and i.rejection[0] for i in result.individuals[4:]] == [CALL, CALL]
    assert result.best is not None


def test_nothing_that_works(tmp_path):
    _, result = evolve(tmp_path / "run", recording(tmp_path / "r.jsonl", ["no"] * 6))
    assert result.best is None and result.finals == [] and result.steps == 0
    assert math.isnan(result.human.score)  # nothing was trained


@pytest.mark.parametrize("eta", [2, 3])
def test_losers_of_halving_stay_below_the_winners(tmp_path, eta):
    training = dataclasses.replace(TRAINING, eta=eta)
    replies = ["cos 2", "sin 1", "exp 1", "cos -2", "sin -1"]
    _, result = evolve(tmp_path / "run", recording(tmp_path / "r.jsonl", replies), 1, 5, training=training)
    judged = [i.score for i in result.individuals if i.interval is not None]
    losers = [i.score for i in result.individuals if i.interval is None]
    assert len(judged) == 1 and len(losers) == 4 and max(losers) <= judged[0]


def test_tuned_numbers_are_the_next_prompts_and_a_resumed_run_tunes_no_more(tmp_path, remembered):
    llm = recording(tmp_path / "r.jsonl", REPLIES)
    kinds = dict(tune=TuneSettings(generations=2, population=4), tune_every=1)
    evolution, result = evolve(tmp_path / "run", llm, **kinds)
    tried = [i for i in result.individuals if i.tuned is not None]
    assert tried and all(i.steps > 256 for i in tried)
    assert (tmp_path / "run" / "individuals.jsonl").read_text().count('"tuned": {') == len(tried)
    better = [i for i in tried if i.tuned]
    for i in better:
        shown = Brief(CartPole, "balance", ("compute_reward",)).improve(i, None)[-1][1]
        assert f"as evolution has tuned them: weight = {i.tuned['weight']:.3g}" in shown
        assert i.graph_file["params"][0]["value"] == i.tuned["weight"]
    evolve(tmp_path / "cut", llm, iterations=1, **kinds)
    _, again = evolve(tmp_path / "cut", llm, **kinds)
    assert [i.to_json() for i in again.individuals] == [i.to_json() for i in result.individuals]


def test_an_edit_changes_what_was_shown(tmp_path):
    """The reply is vetted as the parent's code with the change; one that fits nowhere is refused with a reason."""
    from envolve.llm.search.greedy import Extras

    change = "<<<<<<< SEARCH\n# {}\n=======\n# {}\n>>>>>>> REPLACE"
    replies = ["cos 2", change.format("cos 2", "sin 3"), change.format("nothing", "sin 3")]
    path = recording(tmp_path / "r.jsonl", replies)
    seen = []

    class Codes(FakeVetter):
        def vet(self, reply):
            seen.append(reply)
            return super().vet(reply.removeprefix("```python\n# ").removesuffix("\n```"))

    with make_chat([path], record=tmp_path / "calls.jsonl", budget=Budget()) as chat:
        brief = Brief(CartPole, "balance", ("compute_reward",))
        search = Greedy(brief, 1, chat.models, Extras(edits=1.0))
        s = Settings(iterations=3, training=TRAINING, seed=0, retest=2, novelty=2.0, finalists=1)
        result = Evolution(s, tmp_path, search, chat, Codes(), Watched()).run()
    a, b, c = result.individuals
    assert [i.operator for i in (a, b, c)] == [INITIAL, "edit", "edit"]
    assert seen == ["cos 2", "```python\n# sin 3\n```"] and b.ok
    assert c.rejection[0] == "extract" and "the code has no lines '# nothing'" in c.rejection[1]
    assert "SEARCH" in search.prompts.edit(a, None)[-1][1]
    repair = search.prompts.repair(c)
    assert repair[-2] == ("assistant", f"```python\n{a.code if a.score >= b.score else b.code}\n```")
