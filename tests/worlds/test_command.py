"""`envolve worlds`: what it refuses, and what a card tells."""

from __future__ import annotations

import pytest

import envolve.worlds
from envolve.experiments import film_world, worlds
from envolve.outer.zoo.card import text_of


@pytest.mark.parametrize(
    "words, said",
    [
        (["list", "--agents", "3"], "list: found --agents, expected no flag"),
        (["list", "--agents", "0"], "list: found --agents, expected no flag"),
        (["show", "CartPole-v1-bandit", "--out", "x.png"], "show: found --out, expected no flag"),
        (["pictures", "CartPole-v1-bandit", "--distilled"], "pictures: found --distilled, expected one of --out"),
        (["add", "results/x", "--out", "x.png"], "add: found --out, expected one of --agents, --steps, --learners"),
        (["show"], "show: found nothing, expected the name of a world"),
        (["show", "CartPole-v1-bandits"], "found none of this name, did you mean CartPole-v1-bandit"),
    ],
)
def test_a_flag_that_would_not_be_heard_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert worlds.main(words) == 2
    assert said in capsys.readouterr().err


def test_a_card_says_over_how_many_agents_its_intervals_are() -> None:
    card = envolve.worlds.card("Hopper-v5-bandit")
    lines = text_of(card).splitlines()
    (head,) = (line for line in lines if line.split()[:1] == ["agent"])
    (td3,) = (line for line in lines if line.split()[:1] == ["td3"])
    assert head.split()[:3] == ["agent", "steps", "n"]
    assert td3.split()[:3] == ["td3", "10,000", str(card["unseen"]["td3"]["agents"])]
    assert all(line == line.rstrip() for line in lines)


def test_a_film_of_a_world_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert film_world.main(["nowhere.pt"]) == 2
    assert "WORLD: found no 'nowhere.pt'" in capsys.readouterr().err
