"""All kinds of runs that ``envolve report`` can show: those of every room, the more particular ones first."""

from __future__ import annotations

from envolve.experiments.paper import page as paper
from envolve.llm.reporting import gym_page as gym
from envolve.llm.reporting import page as llm
from envolve.outer.page.kinds import KINDS as OUTER
from envolve.outer.page.kinds import Kind

KINDS = (
    Kind("envolve write --config", "config.json with eureka", gym.fits, gym.read),
    Kind("envolve write", "individuals.jsonl", llm.fits, llm.read),
    Kind("envolve paper train-proxy", "index.json", paper.fits_worlds, paper.read_worlds),
    Kind("envolve paper", "paper/EXPERIMENT/*.json", paper.fits, paper.read),
    *OUTER,
)
