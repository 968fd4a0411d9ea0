#!/usr/bin/env python3
"""The zoo of evolved worlds: lists, shows, draws and tests them, checks learners in them, adds the world of a run."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("worlds.py")  # before all that takes time to import

import os
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

from envolve.core.registry import unknown
from envolve.experiments.command_line import check_count, exit_code, parse
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import ConfigError
from envolve.worlds import shelf
from envolve.worlds.file import WorldError

PROG = "worlds.py"
WORSE = 3  # exit code
HELP = """\
List, show, test and extend the zoo, a collection of evolved worlds to train agents in. To train in one, you need only
NumPy and Gymnasium: `import gymnasium, envolve.worlds; gymnasium.make("envolve/NAME")`.

  envolve worlds list                          list all worlds, with the returns of agents that train in them,
                                               and of the policy that each holds
  envolve worlds show CartPole-v1-bandit       print the card: how the world was made, its cost and its results
  envolve worlds pictures CartPole-v1-bandit --out world.png     draw the world
  envolve worlds test CartPole-v1-bandit --learners dqn a2c      train agents in the world and on its task
  envolve worlds check my_ppo.py:train --like ppo      does train(env_id, steps, seed) learn as much as a right PPO?
  envolve worlds add results/<run_id>          add the world of a run to the zoo, with a card
  envolve worlds add results/<run_id> --distilled      add the distilled world that the run began with

`check` trains agents of a learner of yours and compares what they earn with Stable-Baselines3's agents, with another
function (--like other_ppo.py:train), or with an earlier check (--out FILE.json, later --like FILE.json). Exit code 3
says that the learner is worse; with --same, that it differs (docs/check_learner.md).

`add` accepts contextual bandits of Gymnasium environments. It takes the results for the card from the report of
`envolve evolve`. For any other run, or with --agents, --steps or --learners, it trains agents of kinds that the world
was not evolved with, in the world and on the environment. `test` trains agents of Stable-Baselines3 with their default
hyperparameters; `--learners ppo_normalised` puts VecNormalize around the world. After Ctrl-C, finished agents are kept.

Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments, 3 the learner is worse, 130 Ctrl-C, 143
SIGTERM."""

ACTIONS: dict[str, tuple[str, ...]] = {  # each with its flags
    "list": (),
    "show": (),
    "pictures": ("out",),
    "test": ("agents", "steps", "learners", "save", "results_dir", "workers"),
    "check": ("like", "same", "agents", "worlds", "steps", "out", "workers"),
    "add": ("agents", "steps", "learners", "distilled", "workers"),
}


@dataclass
class Args:
    action: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ACTION")]]
    """What to do: list, show, pictures, test, check or add."""
    what: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE.py:FUNCTION|RUN_DIR")]] = None
    """show, pictures, test: name of a world, or a .safetensors file; check: a function that trains an agent; add:
    folder of a run."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """pictures: PNG file to write. Default: NAME.png. check: JSON file for what the agents earned."""
    like: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = "ppo"
    """check: ppo, ppo_continuous, a2c, dqn, td3, sac or ddpg; FILE.py:FUNCTION; or the JSON file of a check."""
    same: bool = False
    """check: exit with 3 if the agents earn less or more."""
    worlds: tuple[str, ...] = ()
    """check: worlds to train in, with another function. Default: CartPole-v1-bandit CartPole-v1-bandit-2."""
    agents: int | None = None
    """test, check, add: agents of each kind, at least 2. Default: 5."""
    steps: int | None = None
    """test, add: training steps of each agent. Default: 10,000. check: with another function. Default: 10,240."""
    learners: tuple[str, ...] = ()
    """test, add: kinds of agents, e.g. ppo a2c. Default: all kinds that suit the world; for add without the kind that
    the world was evolved with."""
    save: bool = False
    """test: write the results into the world's card."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """test: parent folder for finished agents."""
    distilled: bool = False
    """add: add the world that the run began with (`init: distilled`) instead of the evolved one."""
    workers: int | None = None
    """test, check, add: worker processes. Default: one per core."""


def work(args: Args) -> int:
    if args.action not in ACTIONS:
        raise ConfigError([unknown("ACTION", args.action, ACTIONS)])
    if (args.action == "list") != (args.what is None):
        others = {"list": "nothing", "add": "the folder of a run", "check": "FILE.py:FUNCTION"}
        expected = others.get(args.action, "the name of a world")
        found = repr(args.what) if args.what else "nothing"
        raise ConfigError([f"{args.action}: found {found:.200}, expected {expected}"])
    own = ACTIONS[args.action]
    for f in fields(args):
        if f.name not in ("action", "what", *own) and getattr(args, f.name) != f.default:
            expected = "one of " + ", ".join(flag(name) for name in own) if own else "no flag"
            raise ConfigError([f"{args.action}: found {flag(f.name)}, expected {expected}"])
    check_count("--agents", args.agents, 2)
    check_count("--steps", args.steps, 1)
    check_count("--workers", args.workers, 1)
    if args.action in ("show", "pictures", "test") and not str(args.what).endswith(shelf.TENSORS):
        try:
            shelf.path_of(str(args.what))
        except WorldError as e:
            raise ConfigError([str(e)]) from None
    actions = {"list": listed, "show": shown, "pictures": drawn, "test": tested, "check": checked, "add": added}
    return actions[args.action](args)


def flag(field: str) -> str:
    """How a field is written on the command line."""
    return "--" + field.replace("_", "-")


def check_out(path: Path) -> None:
    """Raises ConfigError."""
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError([f"--out: cannot write {path}, expected a file in a folder that exists"])


def listed(args: Args) -> int:
    from envolve.outer.zoo.card import best_agent, held_return

    print("Returns on the task: of the action that a world pays most for (held), and of the best unseen agent.")
    print(f"{'world':<33}{'bytes':>7}  {'real steps':>10}  {'held':>7}  best unseen agent")
    for name in shelf.names():
        card, size = shelf.card(name), shelf.path_of(name).stat().st_size
        agent, figure = best_agent(card)
        print(f"{name:<33}{size:>7,}  {card['real_steps']:>10,}  {held_return(card):>7}  {agent} {figure}")
    return 0


def shown(args: Args) -> int:
    from envolve.outer.zoo.card import text_of

    print(text_of(shelf.card(str(args.what))))
    return 0


def drawn(args: Args) -> int:
    from envolve.outer.zoo.picture import draw

    name = str(args.what)
    path = args.out or Path(f"{Path(name).stem if name.endswith(shelf.TENSORS) else name.rpartition('/')[2]}.png")
    check_out(path)
    draw(shelf.open_world(name), name, path)
    print(path)
    return 0


def asked(args: Args) -> dict[str, Any]:
    """Fields of ``Measuring`` that the command line sets."""
    given = {"agents": args.agents, "steps": args.steps, "learners": args.learners or None}
    return {name: value for name, value in given.items() if value is not None}


def tested(args: Args) -> int:
    from rich.console import Console

    from envolve.outer.auto.report import table_of
    from envolve.outer.zoo.measure import Measuring
    from envolve.outer.zoo.trial import save, trial

    name = str(args.what).removeprefix(f"{shelf.NAMESPACE}/")
    if args.save:
        shelf.path_of(name)  # a file has no card
    found = trial(name, Measuring(workers=processes(args), **asked(args)), args.results_dir)
    Console().print(table_of(found, f"envolve/{name}: mean return on its task"))
    if args.save:
        print(save(name, found))
    return 0


def checked(args: Args) -> int:
    from envolve.outer.zoo.checking import check, store

    if args.out is not None:
        check_out(args.out)
    agents = args.agents or 5

    def told(world: str, seed: int, share: float) -> None:
        of, number = ("", seed) if seed < agents else ("the other learner's ", seed - agents)
        print(f"{world}: {of}agent {number + 1}/{agents}: {share:.3f}", flush=True)

    found = check(str(args.what), args.like, agents, processes(args), told, args.worlds, args.steps)
    if args.out is not None:
        store(args.out, found)
    print(found)
    return 0 if (found.same if args.same else found.ok) else WORSE


def processes(args: Args) -> int:
    return args.workers or len(os.sched_getaffinity(0))


def added(args: Args) -> int:
    from envolve.outer.zoo.add import add
    from envolve.outer.zoo.measure import Measuring

    given = asked(args)
    how = Measuring(workers=processes(args), **given)
    name = add(Path(str(args.what)), shelf.DATA, how, args.distilled, bool(given))
    print(f"added envolve/{name}: {shelf.DATA / name}{shelf.TENSORS} and its card {name}{shelf.CARD}")
    return 0


def main(argv: list[str] | None = None) -> int:
    from envolve.core.plugins import PluginError
    from envolve.envs.worlds.file import WorldFileError

    args = parse(PROG, Args, argv, HELP)
    return exit_code(PROG, lambda: work(args), (RunError, WorldError, WorldFileError, PluginError, FloatingPointError))


if __name__ == "__main__":
    interrupt.run(main)
