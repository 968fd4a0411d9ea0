"""Finds a command's module, prints its stored help, renames old flags and refuses unknown ones, before any import.

``envolve run CONFIG`` (``envolve/__main__.py``) starts the module that the table (``command_table.py``) names; its old
script is another door to the same. Help is a text that lies in ``experiments/help/``, written by ``python3 -m
envolve.experiments.write_help``, so that nothing has to be imported to print it; the flags that a command knows are
those which its text lists.

Standard library only: importing this must cost nothing. Python 3.8.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Callable, Dict, FrozenSet, List, NoReturn, Optional, Sequence, Tuple

from envolve.core.command_table import COMMANDS, GROUPS, PAPER, Command
from envolve.core.registry import nearest

HELP_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "experiments", "help")
ASK = ("-h", "--help")
ASK_ALL = "--help-all"
WRONG = 2  # the exit code of wrong arguments
WANDB_HELP = "also log to this Weights & Biases project, with models and films (docs/tracking.md)"

_SCRIPTS = {command.script: command for command in COMMANDS.values()}
_started = ""  # the script of the command that the door has started
_door: List[str] = []  # how the door was typed


def of(script: str) -> Optional[Command]:
    return _SCRIPTS.get(script)


def called(script: str) -> str:
    """What messages of this script's command begin with: "envolve run", or the script's own name."""
    return f"envolve {_SCRIPTS[script].name}" if _started == script else script


def typed(script: str) -> List[str]:
    """The words that start this script's command, through the door by which this process was started."""
    command = _SCRIPTS[script]
    return [*_door, *command.name.split()] if _door else command.words


# ------------------------------------------------------------------------------------------------- which command it is


def choose(argv: Sequence[str]) -> Tuple[Command, List[str]]:
    """-> the command, and its own arguments. Without one, prints what there is; ends the process then."""
    global _started, _door
    words = list(argv)
    if not words or words[0] in (*ASK, ASK_ALL, "help"):
        if len(words) > 1 and words[0] == "help":
            return choose([*words[1:], "--help"])
        end_with(overview())
    if words[0] == "--version":
        end_with(_version())
    first = 1
    if words[0] == PAPER:
        if len(words) == 1 or words[1] in (*ASK, ASK_ALL):
            end_with(overview(PAPER))
        first = 2
    name = " ".join([*words[: first - 1], words[first - 1].replace("_", "-")])
    rest = words[first:]
    command = COMMANDS.get(name) or _by_old_name(name)
    if command is None:
        known = [n for n in COMMANDS if n.startswith(PAPER + " ") == (first == 2)]
        near = nearest(name, sorted(known if first == 2 else [*COMMANDS, PAPER]), cutoff=0.0)
        asked = " ".join(words[:first])
        wrong("envolve", f"found no command {asked!r}, expected one that 'envolve --help' lists; nearest: {near}")
    if command.name == "evaluate" and any(word.endswith(".pt") for word in rest[:1]):
        command = COMMANDS["evaluate-world"]
    _started = command.script
    _door = ["python3", "-m", "envolve"] if os.path.basename(sys.argv[0]) == "__main__.py" else ["envolve"]
    return command, rest


def _by_old_name(name: str) -> Optional[Command]:
    """auto_shape, GTN_master, paper's commands without "paper"; with a note."""
    stem = name.replace(PAPER + " ", "").replace("-", "_")
    stem = stem[:-3] if stem.endswith(".py") else stem
    command = _SCRIPTS.get(f"{stem}.py")
    if command is not None:
        _note(name.replace("-", "_"), command.name)
    return command


def overview(only: str = "") -> str:
    """The table."""
    lines = ["Usage: envolve COMMAND [FLAGS]    (or python3 -m envolve COMMAND ...)", ""]
    if only != PAPER:
        lines += [
            "Evolve the environment, not the agent.", "", "Examples:",
            "  envolve evolve gymnasium:LunarLander-v3                        any environment, no configuration",
            "  envolve run default_config_cartpole_syn_env.yaml --single      evolve a synthetic environment",
            "  envolve evaluate-world results/<run>/model.pt                  train fresh agents in that world",
            "  envolve shape --task Cartpole --num-envs-per-shaper 64 --iterations 30",
            "  envolve goal --task reacher                                    reach goals without rewards",
        ]  # fmt: skip
    else:
        lines += [
            "Examples:",
            "  envolve paper train-proxy default_config_cartpole_syn_env.yaml --quick",
            "  envolve paper transfer default_config_gridworld_reward_env.yaml --agent sarsa",
            "  envolve paper figures all",
        ]
    for title, commands in GROUPS.items():
        paper = commands[0].name.startswith(PAPER)
        if paper != (only == PAPER):
            if paper:
                lines += ["", f"{title}:", f"  {PAPER + ' ...':<17}{len(commands)} commands: envolve {PAPER} --help"]
            continue
        width = max(len(command.name) for command in commands) + 3 if paper else 17
        lines += ["", f"{title}:", *(f"  {command.name:<{width}}{command.about}" for command in commands)]
    lines += [
        "",
        "envolve COMMAND --help explains a command, --help-all all of its flags. In flags, - and _ are equal.",
    ]
    return "\n".join(lines) + "\n"


def _version() -> str:
    from importlib import metadata  # slow

    try:
        return f"envolve {metadata.version('envolve')}\n"
    except metadata.PackageNotFoundError:
        return "envolve, from a checkout\n"


# ------------------------------------------------------------------------------------------------------------ its flags


def help_file(command: Command, everything: bool = False) -> str:
    return os.path.join(HELP_FOLDER, command.name.replace(" ", "-") + (".all" if everything else "") + ".txt")


def help_text(command: Command, everything: bool = False) -> str:
    """Empty if it has not been written yet."""
    for path in [help_file(command, True)] * everything + [help_file(command)]:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return file.read()
    return ""


def flags_of(command: Command) -> FrozenSet[str]:
    """All that it knows, by its help; empty if that is not there."""
    lines = re.findall(r"^  (--[^ ].*)", help_text(command, True), re.MULTILINE)
    return frozenset(flag for line in lines for flag in re.findall(r"--[\w-]+", line.split("  ")[0]))


def kinds_of(command: Command) -> Dict[str, str]:
    """What its flags take, by its help: N, a whole number; X, a number; {a,b}, one of these words. Other flags are not
    there, nor those of a command that checks them itself."""
    if command.all_at_once:
        return {}
    lines = re.findall(r"^  (--[\w-]+(?:, --[\w-]+)*) (N|X|\{\S+\})(?:  |$)", help_text(command, True), re.MULTILINE)
    return {flag: kind for flags, kind in lines for flag in flags.split(", ")}


def expected_of(kind: str, value: str) -> str:
    """What a flag of this kind expects in place of the value; empty if it may be that."""
    if kind.startswith("{"):
        words = kind[1:-1].split(",")
        return "" if value in words else f"one of {', '.join(words)}; nearest: {nearest(value, words, cutoff=0.0)}"
    try:
        (int if kind == "N" else float)(value)
    except ValueError:
        return "a whole number" if kind == "N" else "a number"
    return ""


def answer(prog: str, argv: Sequence[str]) -> None:
    """Before anything slow is imported: prints help, or names a wrong flag or value, and ends the process. prog: a
    script's name, or "envolve run"."""
    command = _SCRIPTS.get(prog) or COMMANDS.get(prog.partition(" ")[2])
    if command is not None:
        _answer_help(command, argv)
        _modern(command, argv, say=False)


def modern(script: str, argv: Optional[Sequence[str]]) -> List[str]:
    """The arguments in today's words; a note on stderr for every old one. None: those of the process. Prints help, or
    names a wrong flag or value, and ends the process then."""
    command = _SCRIPTS[script]
    words = list(sys.argv[1:] if argv is None else argv)
    _answer_help(command, words)
    return _modern(command, words, say=True)


# what write_help waits for: every command declares what it can be asked where it reads what it is asked
declared: Optional[Callable[[str, Any, str], object]] = None


def parse_with(script: str, parser: Any, argv: Optional[Sequence[str]], namespace: Any = None) -> Any:
    """The arguments of a command whose parser is argparse's. Wrong ones end the process."""
    if declared is not None:
        declared(script, parser, parser.description)
    words = modern(script, argv)
    parser.prog = called(script)
    return parser.parse_args(words, namespace)


def _answer_help(command: Command, argv: Sequence[str]) -> None:
    asked = [word for word in _own(argv) if word in (*ASK, ASK_ALL)]
    text = help_text(command, ASK_ALL in asked) if asked else ""
    if text:
        end_with(text)


def _own(argv: Sequence[str]) -> List[str]:
    """The words before --."""
    words = list(argv)
    return words[: words.index("--")] if "--" in words else words


def _modern(command: Command, argv: Sequence[str], say: bool) -> List[str]:
    prog = called(command.script)
    own, known, kinds, said = _own(argv), flags_of(command), kinds_of(command), set()
    out: List[str] = []
    for i, word in enumerate(own):
        if not word.startswith("--"):
            out.append(word)
            continue
        typed_flag, equals, value = word.partition("=")
        flag = typed_flag.replace("_", "-")
        if flag in command.old:
            if say and flag not in said:
                _note(typed_flag, command.old[flag])
            said.add(flag)
            flag = command.old[flag]
        elif flag in command.kept:
            if say:
                _note(typed_flag, command.kept[flag])
        elif known and flag not in known and flag not in command.hidden and flag not in (*ASK, ASK_ALL):
            near = nearest(flag, sorted([*known, *command.old]), cutoff=0.0) or ""
            near = command.old.get(near, near)
            wrong(prog, f"found {typed_flag}, expected a flag that --help-all lists; nearest: {near}")
        alone = not equals and (i + 1 == len(own) or own[i + 1].startswith("--"))
        if say and flag == "--video" and command.no_value and alone:
            print(f"note: --video now takes a FILE; without one the film is {command.no_value}", file=sys.stderr)
        if flag in kinds:
            given = value if equals else "" if alone else own[i + 1]
            expected = expected_of(kinds[flag], given)
            if expected:
                wrong(prog, f"{typed_flag}: found {repr(given) if given else 'nothing'}, expected {expected}")
        out.append(flag + equals + value)
    return out + list(argv)[len(own) :]


def _note(old: str, new: str) -> None:
    print(f"note: {old} is now {new}", file=sys.stderr)


def near_file(path: str, ending: str = "", cutoff: float = 0.5) -> str:
    """What an error goes on with, ", did you mean X": the nearest file with this ending in the same folder, empty if
    none is like it. cutoff: of ``nearest``."""
    folder, name = os.path.split(path)
    try:
        names = [entry.name for entry in os.scandir(folder or ".") if entry.name.endswith(ending)]
    except OSError:
        return ""
    near = nearest(name, names, cutoff)
    return f", did you mean {os.path.join(folder, near)}" if near else ""


def existing(script: str, what: str, path: str) -> None:
    """Ends the process if there is nothing at this path, and names the nearest."""
    if not os.path.exists(path):
        wrong(called(script), f"{what}: found no {path!r}{near_file(path)}")


def wrong(prog: str, text: str) -> NoReturn:
    """One line, exit code 2."""
    print(f"{prog}: {text}", file=sys.stderr)
    raise SystemExit(WRONG)


def end_with(text: str) -> NoReturn:
    sys.stdout.write(text)
    sys.stdout.flush()
    raise SystemExit(0)
