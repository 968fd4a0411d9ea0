"""An evolution whose calls failed and were answered later ends in the bytes of one without failures."""

from __future__ import annotations

import json

import pytest

from envolve.llm.evolution import Evolution
from envolve.llm.models.chat import Budget, Price, Request, Unanswered, make_chat
from envolve.llm.models.ledger import prompt_tokens
from envolve.llm.models.record import read_recording
from envolve.llm.search.archive import Archive
from envolve.llm.search.greedy import Greedy
from envolve.llm.search.individual import CALL
from envolve.llm.search.islands import Islands
from envolve.llm.search.prompts import Brief
from envolve.llm.settings import Settings
from tests.examples import some_slow
from tests.llm import scripted_server as scripted
from tests.llm.scripted_server import ScriptedServer
from tests.llm.test_evolution import REPLIES, TRAINING, CartPole, FakeVetter, Watched

pytestmark = pytest.mark.usefixtures("remembered")
PRICES = {name: Price(1e6, 1e6) for name in ("m", "a", "b")}


class Models:
    """A server whose n-th question of a run gets the n-th reply, unless ``failing`` says otherwise: call -> answer.
    Calls are told apart by the seed that they carry."""

    def __init__(self) -> None:
        self.failing: dict[int, scripted.Answer] = {}
        self.dead: set[str] = set()
        self.answered: list[int] = []

    def __call__(self, content):
        call = content["seed"]
        if content["model"] in self.dead:
            return scripted.error(401, "Incorrect API key")
        if call in self.failing:
            return self.failing[call]
        self.answered.append(call)
        return scripted.good(REPLIES[call % len(REPLIES)], tokens=(10, 10))


def evolve(folder, url, models=("m",), budget=None, search=Greedy, samples=3):
    folder.mkdir(exist_ok=True)
    record, quick = folder / "calls.jsonl", lambda seconds: None
    with make_chat(
        models, url, record, budget=Budget(usd=budget), prices=PRICES, environ={}, sleep=quick, parallel=1, attempts=2
    ) as chat:
        brief = Brief(CartPole, "balance", ("compute_reward",))
        which = Greedy(brief, samples, chat.models) if search is Greedy else Islands(brief, samples, chat.models, 0, 2)
        s = Settings(2, TRAINING, 0, 1.0, 100, 2.0, finalists=2, retest=2)
        return Evolution(s, folder, which, chat, FakeVetter(), Watched()).run()


def left(folder, result):
    """All that a run leaves which has no times in it."""
    finals = json.dumps([f.individual.to_json() for f in result.finals])
    return (folder / "individuals.jsonl").read_bytes(), finals, json.dumps([i.to_json() for i in result.individuals])


FAILING = {
    "unreachable": {k: scripted.error(503, "busy") for k in range(6)},
    "some of the first": {0: scripted.limited("0"), 2: scripted.malformed()},
    "some of the last": {4: scripted.cut(), 5: scripted.web_page()},
    "the last of all": {5: scripted.error(429, "no money", code="insufficient_quota")},
    "a refusal of all": {k: scripted.error(400, "what is this?") for k in range(6)},
}


@pytest.mark.parametrize("search", [Greedy, pytest.param(Islands, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", some_slow(FAILING, [*FAILING][:2]))
def test_failed_calls_leave_no_trace(name, search, tmp_path) -> None:
    models = Models()
    with ScriptedServer(models) as server:
        whole = left(tmp_path / "whole", evolve(tmp_path / "whole", server.url, search=search))
        assert sorted(models.answered) == list(range(6))
        models.answered, models.failing = [], dict(FAILING[name])
        for _ in range(2):  # nothing has been mended in between
            with pytest.raises(Unanswered, match="calls are answered and kept"):
                evolve(tmp_path / "cut", server.url, search=search)
        models.failing = {}
        assert left(tmp_path / "cut", evolve(tmp_path / "cut", server.url, search=search)) == whole
        assert sorted(models.answered) == list(range(6))  # each was paid for once


def lacks_a_dollar(record, refused: int) -> float:
    """A budget that does not suffice for this call: what is paid before it, and the most that it can cost."""
    request = read_recording(record).entries[refused].request
    messages = tuple((m["role"], m["content"]) for m in request["messages"])
    return 20 * refused + prompt_tokens(Request("m", messages)) + request["max_tokens"] - 1


@pytest.mark.parametrize("refused", some_slow([1, 3], [3]))
def test_a_raised_budget_goes_on_as_if_it_had_been_there(refused, tmp_path) -> None:
    """What there is is trained and tested when the budget is spent; with the same budget nothing is trained again."""
    models = Models()
    with ScriptedServer(models) as server:
        whole = left(tmp_path / "whole", evolve(tmp_path / "whole", server.url, samples=2))
        models.answered, usd = [], lacks_a_dollar(tmp_path / "whole" / "calls.jsonl", refused)
        ended = evolve(tmp_path / "cut", server.url, budget=usd, samples=2)
        assert "budget is spent" in ended.stopped and ended.best is not None
        assert models.answered == list(range(refused))
        before = (tmp_path / "cut" / "individuals.jsonl").read_bytes()
        assert left(tmp_path / "cut", evolve(tmp_path / "cut", server.url, budget=usd, samples=2))[0] == before
        assert left(tmp_path / "cut", evolve(tmp_path / "cut", server.url, samples=2)) == whole
    assert sorted(models.answered) == list(range(4))


def test_a_run_of_before_that_took_failures_for_results(tmp_path) -> None:
    """Its last iteration is known, with rejected calls."""
    models = Models()
    with ScriptedServer(models) as server:
        whole = left(tmp_path / "whole", evolve(tmp_path / "whole", server.url))
        result = evolve(tmp_path / "old", server.url)
        lost = result.individuals[3:]
        for i in lost:
            i.rejection, i.reply, i.code, i.graph_file = (CALL, "HTTP 401"), "", "", None
        Archive(tmp_path / "old" / "individuals.jsonl").put(lost)
        assert left(tmp_path / "old", evolve(tmp_path / "old", server.url)) == whole


def test_one_of_two_models_is_dead(tmp_path, caplog) -> None:
    """The other stands in, aloud; the record replays to the same bytes; a resumed run asks the dead one again."""
    models = Models()
    models.dead = {"a"}
    with ScriptedServer(models) as server:
        result = evolve(tmp_path / "run", server.url, ("a", "b"))
        assert {i.model for i in result.individuals} == {"b"} and result.best is not None
        said = [r.getMessage() for r in caplog.records if "go to the other models" in r.getMessage()]
        assert len(said) == 1 and "401" in said[0]
        asked = len(server.requests)
        whole, resumed = left(tmp_path / "run", result), evolve(tmp_path / "run", server.url, ("a", "b"))
        assert left(tmp_path / "run", resumed) == whole and len(server.requests) == asked
        again = evolve(tmp_path / "again", None, [f"replay:{tmp_path / 'run' / 'calls.jsonl'}"])
        assert left(tmp_path / "again", again) == whole
        models.dead = {"a", "b"}
        with pytest.raises(Unanswered, match="401"):
            evolve(tmp_path / "both", server.url, ("a", "b"))
