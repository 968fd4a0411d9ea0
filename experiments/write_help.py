"""Writes the help of every command into experiments/help/, where it is printed from without importing anything:

    python3 -m envolve.experiments.write_help

<command>.txt is its --help; where there are more than MOST flags, <command>.all.txt is its --help-all. A test compares
them with what the commands declare."""

from __future__ import annotations

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("write_help.py")  # before all that takes time to import

import argparse
import importlib
import os
import re
import textwrap
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

from envolve.core import commands
from envolve.core.command_table import COMMANDS, Command
from envolve.core.places import CODE

WIDTH = 100
COLUMN = 28  # where what a flag means begins
MOST = 30  # flags that --help shows
# of flags of dataclasses, which declare no groups
GROUPS = {
    "The run": "task task-description shaper-types shapers candidates human config params seed set results-dir run-dir "
    "env name resume check quick minutes wrappers env-kwargs json video sync-dir quit-workers out write list open "
    "watch text storage tensorboard wandb",
    "Agents and training": "mode objective vary-hp runs iterations learner seeds agents num-envs-per-shaper halving "
    "schedule stop real num-iters shapers-per-iter retest finalists episodes steps worlds modes learners evolved "
    "published agent-set agent world search",
    "Language models": "llm base-url temperature max-tokens timeout parallel price budget-usd budget-tokens novelty "
    "islands migration-every show-human-reward",
    "Tuning": "tune tune-top tune-generations tune-population tune-sigma tune-step tune-workers",
    "Engine and processes": "engine device threads backend single bohb-id heartbeat port slots "
    "workers workers-on masters processes collectors memory hours at-once "
    "allow-unprotected",
}
# what --help shows of a command with more flags than MOST; the rest is in --help-all
SHOWN = {
    "write": "task task-description shaper-types llm base-url mode num-iters shapers-per-iter num-envs-per-shaper "
    "iterations seeds halving tune retest seed budget-usd budget-tokens learner set engine device threads results-dir "
    "resume config wandb json video",
    "goal": "resume run-dir results-dir video wandb per-member task agent num-timesteps num-evals num-eval-envs "
    "episode-length seed population engine threads device num-envs batch-size discounting policy-lr critic-lr h-dim "
    "n-hidden use-her normalize-observations max-replay-size",
    "evolve-goals": "resume run-dir results-dir wandb workers goal-family start-family generations num-workers "
    "noise-std step-size task agent num-timesteps num-eval-envs seed engine threads device num-envs batch-size "
    "discounting policy-lr critic-lr h-dim n-hidden use-her",
}


TYPES = {"INT": "N", "FLOAT": "X", "STR": "NAME", "PATH": "FILE"}


class Flag(NamedTuple):
    group: str
    spelt: str  # "--task", "--human, --no-human", "CONFIG", and "CONFIG " if it has to be there
    value: str  # "NAME", empty for a switch
    text: str

    @property
    def name(self) -> str:
        return self.spelt.split(",")[0].lstrip("-")

    @property
    def positional(self) -> bool:
        return not self.spelt.startswith("-")


class Declared(NamedTuple):
    """What a command can be asked, and what it says of itself."""

    flags: list[Flag]
    text: str


class _Found(BaseException):
    """Ends a command where it has declared itself."""


def declared(command: Command) -> Declared:
    found: list[Declared] = []

    def take(script: str, what: Any, text: str) -> None:
        assert script == command.script, (script, command.script)
        parser = what if isinstance(what, argparse.ArgumentParser) else parser_of(what)
        epilog = parser.epilog if parser is what else ""
        found.append(Declared(flags_of(parser, command), "\n\n".join(filter(None, (text.strip("\n"), epilog)))))
        raise _Found

    main = importlib.import_module(f"envolve.{command.module}").main
    before, commands.declared = commands.declared, take
    try:
        main([])
    except _Found:
        return found[0]
    finally:
        commands.declared = before
    raise AssertionError(f"{command.name}: main() does not parse its arguments first")


def parser_of(cls: type) -> Any:
    import tyro

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tyro.extras.get_parser(cls)


def flags_of(parser: argparse.ArgumentParser, command: Command) -> list[Flag]:
    flags = []
    hidden = {*command.hidden, *command.kept}
    generic = {"options", "optional arguments", "positional arguments", "flags"}
    for group in parser._action_groups:
        for action in group._group_actions:
            if action.help == argparse.SUPPRESS or action.dest == "help":
                continue
            spelt = [s for s in action.option_strings if s not in hidden]
            if action.option_strings and not spelt:
                continue
            own = (group.title or "").lower() in generic
            flags.append(_flag(action, spelt, "" if own else str(group.title)))
    return flags


def _flag(action: argparse.Action, spelt: list[str], title: str) -> Flag:
    value = action.metavar if isinstance(action.metavar, str) else ""
    value = re.sub(r"\{None\}\||(?<=\{)None,", "", value).replace("[", "").replace("]", "").strip()
    value = re.sub(r"^\{?(\w+) \1 \.\.\.\}?$", r"\1 ...", value)
    for types, word in TYPES.items():
        value = re.sub(rf"\b{types}\b", word, value)
    if action.nargs == 0:
        value = ""
        spelt = [s for s in spelt if s.startswith("--no-") is False or action.default is not False]
    elif not value and spelt:
        value = action.dest.upper()
    if not spelt:
        name = action.dest.upper().replace("-", "_") if value in ("", *TYPES.values()) else value
        return Flag("", name if action.nargs in ("?", "*") else f"{name} ", "", _said(action))
    spelt = sorted(spelt, key=lambda s: not s.startswith("--"))
    title = "The run" if title == "run" else title
    group = title or next((g for g, names in GROUPS.items() if spelt[0].lstrip("-") in names.split()), "More")
    return Flag(group[:1].upper() + group[1:], ", ".join(spelt), value, _said(action))


def _said(action: argparse.Action) -> str:
    """Its meaning; a default where it says something."""
    text = " ".join((action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%").split())
    tyros = re.search(r" ?\((default|repeatable|required)[^()]*(\([^()]*\))?[^()]*\)$", text)
    if isinstance(action.default, str) or tyros is None or "MISSING" not in str(action.default) and action.nargs != 0:
        if tyros is None or "MISSING" not in str(action.default):
            return re.sub(r" ?\(default: (None|False|True)\)$", "", text)
    text, default = text[: tyros.start()].rstrip(), tyros[0].strip(" ()")
    value = default.partition(": ")[2].strip().replace(f"{CODE}{os.sep}", "")  # the same text in every checkout
    if default == "required":
        return f"{text.rstrip('.')} (required)" if action.option_strings else text
    said = value in ("", "None", "True", "False") or re.search(r"\b[Dd]efault\b|\b0: ", text)
    return text if said else f"{text.rstrip('.')} (default: {value})"


# ------------------------------------------------------------------------------------------------------------- the text


def render(command: Command, what: Declared, everything: bool) -> str:
    first, examples, rest, codes = _parts(_today(what.text))
    flags = [flag._replace(text=_today(flag.text)) for flag in what.flags]
    if not everything and (shown := SHOWN.get(command.name)):
        unknown = set(shown.split()) - {flag.name for flag in flags}
        assert not unknown, f"{command.name}: SHOWN names {sorted(unknown)}, which the command has not"
        flags = [flag for flag in flags if flag.positional or flag.name in shown.split()]
    left_out = len(what.flags) - len(flags)
    positionals = [flag for flag in flags if flag.positional]
    words = " ".join(f.spelt.strip() if f.spelt.endswith(" ") else f"[{f.spelt}]" for f in positionals)
    tail = " -- STUDY|CONFIG|COMMAND ..." if command.module.startswith("slurm.") else ""
    lines = [f"Usage: envolve {command.name}{' ' * bool(words)}{words} [FLAGS]{tail}", "", *first.splitlines()]
    lines += ["", "Examples:", *examples.splitlines()]
    for group in _ordered(flags):
        lines += ["", f"{group}:"] if group else [""]
        lines += [line for flag in flags if flag.group == group for line in _lines(flag)]
    if left_out:
        lines += ["", f"{left_out} more flags: envolve {command.name} --help-all"]
    for part in rest:
        lines += ["", *part.splitlines()]
    lines += ["", *_folded(codes, WIDTH)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _today(text: str) -> str:
    """Names of scripts, and flags, as they are typed today."""
    for command in COMMANDS.values():
        names = (" ".join(command.words), command.words[1], command.script)
        text = re.sub("|".join(rf"(?<![\w/]){re.escape(name)}" for name in names), f"envolve {command.name}", text)
    return re.sub(r"--\w+", lambda flag: flag[0].replace("_", "-"), text)


def _parts(text: str) -> tuple[str, str, list[str], str]:
    """A command's text -> what it does, its examples, what else there is to say, its exit codes."""
    paragraphs = re.split(r"\n\s*\n", text)
    codes = ""
    for i, paragraph in enumerate(paragraphs):
        before, mark, after = paragraph.partition("Exit codes:")
        if mark:
            codes = mark + after
            paragraphs[i] = re.sub(r"\s*Flags may be\s+written with - or _\.\s*", "", before).strip("\n")
    paragraphs = [p for p in paragraphs if p.strip()]
    at = next(i for i, p in enumerate(paragraphs) if p.startswith("  envolve "))
    first = paragraphs[0] if at else ""
    return _wrapped(first), paragraphs[at], [_wrapped(p) for p in paragraphs[1:at] + paragraphs[at + 1 :]], codes


def _wrapped(paragraph: str) -> str:
    """Indented ones are left as they are."""
    if any(line.startswith(" ") for line in paragraph.splitlines()):
        return paragraph
    return "\n".join(_folded(paragraph, WIDTH))


def _folded(text: str, width: int) -> list[str]:
    """Text in lines; names with hyphens, <results-dir> or --run-dir, stay whole."""
    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _ordered(flags: Iterable[Flag]) -> list[str]:
    """Groups; those of dataclasses in their own order."""
    groups = list(dict.fromkeys(flag.group for flag in flags))
    known = ["", *GROUPS, "More"]
    return sorted(groups, key=lambda g: known.index(g) if g in known else 2)


def _lines(flag: Flag) -> list[str]:
    left = f"  {flag.spelt} {flag.value}".rstrip()
    told = _folded(flag.text, WIDTH - COLUMN) or [""]
    if len(left) > COLUMN - 2:
        return [left, *(" " * COLUMN + line for line in told)]
    return [f"{left:<{COLUMN}}{told[0]}", *(" " * COLUMN + line for line in told[1:])]


def texts(command: Command) -> dict[str, str]:
    """File -> what is to be in it."""
    what = declared(command)
    written = {commands.help_file(command): render(command, what, False)}
    if command.name in SHOWN:
        written[commands.help_file(command, True)] = render(command, what, True)
    elif len(what.flags) > MOST:
        raise AssertionError(f"{command.name}: {len(what.flags)} flags; name in SHOWN at most {MOST} for --help")
    return written


def main() -> int:
    os.makedirs(commands.HELP_FOLDER, exist_ok=True)
    known = set()
    for command in COMMANDS.values():
        for path, text in texts(command).items():
            known.add(os.path.basename(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    for name in set(os.listdir(commands.HELP_FOLDER)) - known:
        os.unlink(os.path.join(commands.HELP_FOLDER, name))
    return 0


if __name__ == "__main__":
    interrupt.run(main)
