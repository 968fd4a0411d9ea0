"""TensorBoard and Weights & Biases for commands that measure and have no folder of a run: ``--tensorboard DIR``, and
``--wandb PROJECT`` beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.board import check_events, write_series
from envolve.outer.reporting.wandb_run import check_wandb, followed

SWITCHES = ("tensorboard", "wandb", "session")


@dataclass(kw_only=True)
class EventArgs:
    """The two switches, and what lasts until the command ends."""

    tensorboard: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Write TensorBoard events to this folder, for each series as soon as it is complete."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Also log these events to this Weights & Biases project (docs/tracking.md). Requires --tensorboard."""

    def __post_init__(self) -> None:
        self.session = contextlib.ExitStack()


def check_tracking(args: EventArgs) -> None:
    """Before hours of work, not after them. Raises ConfigError."""
    check_events(args.tensorboard)
    check_wandb(args.wandb)
    if args.wandb is not None and args.tensorboard is None:
        raise ConfigError(["--wandb: found no --tensorboard DIR, expected the folder whose events W&B is to get"])


def begin_tracking(args: EventArgs) -> None:
    """W&B hears what is written into the folder, if it is asked for, until ``args.session`` is closed. Called when all
    other arguments are checked. Raises ConfigError."""
    check_tracking(args)
    if args.wandb is not None and args.tensorboard is not None:
        args.session.enter_context(followed(args.wandb, args.tensorboard, settings=settings_of(args)))


def settings_of(args: EventArgs) -> dict[str, Any]:
    """What a measurement depends on, as plain values: the arguments but the switches."""
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
    return {k: v for k, v in plain.items() if k not in SWITCHES}


def tell_series(args: EventArgs, title: str, quantities: Mapping[str, Sequence[Any]]) -> None:
    """Events of one series, in a folder of its own, if they are asked for. Raises OSError."""
    if args.tensorboard is not None:
        write_series(args.tensorboard, title, quantities)
