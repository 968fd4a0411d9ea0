"""Repairs within an iteration: asked with the reason and the own code, inside the budget, recorded, replayed alike."""

from __future__ import annotations

import json

import pytest

from envolve.envs.physics.cartpole import CartPole
from envolve.llm.evolution import Evolution
from envolve.llm.models.chat import Budget, Chat, make_chat
from envolve.llm.models.prices import Price
from envolve.llm.models.request import FIRST_REPAIR, Reply, Request
from envolve.llm.repairs import MOST, broken, call_number
from envolve.llm.search.greedy import Greedy
from envolve.llm.search.individual import CALL, NOVELTY, Individual
from envolve.llm.search.prompts import Brief
from envolve.llm.settings import Settings
from envolve.llm.vetting.vet import Rejection, Vetted
from tests.llm.individuals import individual
from tests.llm.test_evolution import REPLIES, TRAINING, FakeVetter, Watched, evolve, graph_file, recording

pytestmark = pytest.mark.usefixtures("remembered")
BRIEF = Brief(CartPole, "balance", ("compute_reward",))


class Server:
    """A model whose first answers are wrong, whose answers to a repair are right."""

    free = False

    def __init__(self, first: list[str], repaired: list[str]) -> None:
        self.first, self.repaired, self.asked = list(first), list(repaired), []

    def send(self, call):
        self.asked.append((call.index, call.request))
        text = (self.repaired if call.index >= FIRST_REPAIR else self.first).pop(0)
        return Reply(text, "m", 10, 5, 0.0, "stop")

    def close(self):
        pass


class Vetter(FakeVetter):
    """As FakeVetter, and "boom": a graph that is not finite in training."""

    def vet(self, reply):
        if reply.startswith("boom"):
            self.seen.append(reply)
            return Vetted(f"# {reply}", graph_file("log", 1.0), 0.0)
        if reply.startswith("bad"):
            self.seen.append(reply)
            return Rejection(f"code of {reply}", "allowlist", f"line 1: {reply} is not allowed", 0.0)
        return super().vet(reply)


def chat_with(server, folder, budget=Budget()):  # noqa: B008
    prices = {"m": Price(1.0, 1.0)}
    return Chat({"m": server}, folder / "calls.jsonl", budget, 1, 2, prices=prices, sleep=lambda _: None)


def run(folder, server, repairs=1, iterations=1, samples=3, budget=Budget(), replay=None):  # noqa: B008
    folder.mkdir(exist_ok=True)
    chat = (
        chat_with(server, folder, budget)
        if replay is None
        else make_chat([f"replay:{replay}"], record=folder / "calls.jsonl")
    )
    with chat:
        search = Greedy(BRIEF, samples, chat.models)
        s = Settings(iterations, TRAINING, 0, novelty=2.0, finalists=1, retest=2, repairs=repairs)
        evolution = Evolution(s, folder, search, chat, Vetter(), Watched())
        return evolution, evolution.run()


def test_a_refused_reply_is_asked_for_again_with_its_reason(tmp_path) -> None:
    server = Server(["cos 2", "bad one", "nonsense"], ["sin 1", "cos -3"])
    evolution, result = run(tmp_path / "run", server)
    assert all(i.ok for i in result.individuals)
    assert [index for index, _ in server.asked] == [0, 1, 2, FIRST_REPAIR + MOST, FIRST_REPAIR + 2 * MOST]
    request = server.asked[3][1]
    assert "line 1: bad one is not allowed" in request.messages[-1][1] and "code of bad one" in request.messages[-2][1]
    second = result.individuals[1]
    assert (
        second.reply == "sin 1"
        and second.call == 1
        and second.repairs
        == [
            {
                "call": FIRST_REPAIR + MOST,
                "reply": "bad one",
                "code": "code of bad one",
                "rejection": ("allowlist", "line 1: bad one is not allowed"),
                "failure": None,
            }
        ]
    )
    again = Individual.from_json(json.loads(json.dumps(second.to_json())))
    assert again.repairs == second.repairs
    assert "repairs" not in result.individuals[0].to_json()  # as earlier versions wrote it


def test_none_is_asked_for_more_often_than_allowed(tmp_path) -> None:
    server = Server(["cos 2", "bad one", "cos 3"], ["bad two", "bad three", "bad four"])
    _, result = run(tmp_path / "run", server, repairs=2)
    assert result.individuals[1].rejection == ("allowlist", "line 1: bad three is not allowed")
    assert [r["reply"] for r in result.individuals[1].repairs] == ["bad one", "bad two"] and len(server.asked) == 5
    _, none = run(tmp_path / "none", Server(["cos 2", "bad one", "cos 3"], []), repairs=0)
    assert none.individuals[1].rejection is not None and none.individuals[1].repairs == []


def test_what_fails_in_training_is_repaired_and_trained(tmp_path) -> None:
    server = Server(["cos 2", "boom", "sin 1"], ["cos -3"])
    _, result = run(tmp_path / "run", server)
    mended = result.individuals[1]
    assert mended.ok and mended.reply == "cos -3" and "NotFinite" in str(mended.repairs[0]["failure"])
    assert mended.steps > result.individuals[0].steps  # both trainings are charged
    assert "failed in training" in server.asked[3][1].messages[-1][1]


def test_a_replay_and_a_killed_run_end_in_the_same_bytes(tmp_path) -> None:
    first = ["cos 2", "bad one", "boom", "cos 4", "nonsense", "sin 1"]
    server = Server(first, ["sin 1", "cos -3", "exp 1"])
    _, whole = run(tmp_path / "run", server, iterations=2)
    record = tmp_path / "run" / "calls.jsonl"
    _, replayed = run(tmp_path / "replay", None, iterations=2, replay=record)
    assert (tmp_path / "run" / "individuals.jsonl").read_bytes() == (
        tmp_path / "replay" / "individuals.jsonl"
    ).read_bytes()
    assert replayed.best.individual.to_json() == whole.best.individual.to_json()
    # killed after the calls of the second iteration, before anything of it was in the archive
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "calls.jsonl").write_bytes(record.read_bytes())
    lines = (tmp_path / "run" / "individuals.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "individuals.jsonl").write_bytes(b"".join(lines[:4]))
    again = Server([], [])
    _, resumed = run(cut, again, iterations=2)
    assert again.asked == [] and (cut / "individuals.jsonl").read_bytes() == b"".join(lines)


def test_the_budget_holds(tmp_path) -> None:
    most = Request("m", BRIEF.initial(), 1.0, 4096, 0)
    with chat_with(Server([], []), tmp_path) as chat:
        tokens = chat.ledger.most(most)
    one = tokens.prompt + tokens.completion
    server = Server(["bad one", "cos 2", "cos 3"], ["cos -3"] * 3)
    evolution, result = run(tmp_path / "run", server, budget=Budget(tokens=one + 45))
    assert len(server.asked) == 3 and result.stopped and result.individuals[0].rejection is not None


def test_a_recording_written_by_hand_has_no_repairs_and_does_not_end_at_them(tmp_path) -> None:
    _, plain = evolve(tmp_path / "plain", recording(tmp_path / "r.jsonl", REPLIES))
    _, asked = evolve(tmp_path / "asked", recording(tmp_path / "r.jsonl", REPLIES), repairs=2)
    assert not asked.stopped
    assert [i.to_json() for i in asked.individuals] == [i.to_json() for i in plain.individuals]


def test_what_may_be_repaired() -> None:
    fine, lost = individual(0, score=1.0), individual(1, rejection=(CALL, "no answer"))
    copy, wrong = individual(2, rejection=(NOVELTY, "a copy")), individual(3, rejection=("trace", "line 1: no"))
    crashed = individual(4, failure="NotFinite")
    assert broken([fine, lost, copy, wrong, crashed], 1) == [wrong, crashed]
    assert broken([wrong, crashed], 0) == []
    assert len({call_number(individual(k)) for k in range(50)}) == 50


def test_the_next_prompt_names_what_was_refused() -> None:
    refused = [individual(k, rejection=("allowlist", "line 3: 'while' is not allowed")) for k in (1, 2)]
    text = BRIEF.improve(individual(0, score=1.0), None, [*refused, individual(3, failure="NotFinite: reward")])[-1][1]
    assert text.count("line 3: 'while' is not allowed") == 1 and "NotFinite: reward" in text
    search = Greedy(BRIEF, 2, ["m"])
    search.tell(
        [
            individual(0, iteration=0, score=1.0),
            *[individual(k, iteration=0, rejection=r.rejection) for k, r in enumerate(refused, 1)],
        ]
    )
    assert "'while' is not allowed" in search.ask(1)[0].messages[-1][1]
