"""Whether PyTorch can use a device on this machine: asked before anything is begun on it."""

from __future__ import annotations

import torch

from envolve.outer.config.yaml_lines import ConfigError, show


def unusable(device: str, option: str = "--device") -> list[str]:
    """What is wrong with a device here, if anything: one line, which names the option or key that chose it."""
    if device == "cpu":
        return []
    try:
        torch.zeros(1, device=device)
        return []
    except (RuntimeError, AssertionError, ValueError) as e:
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
    count = torch.cuda.device_count()
    has = f"cpu or cuda:0 to cuda:{count - 1}" if count else "cpu: PyTorch finds no GPU on this machine"
    return [f"{option}: found {show(device)}, which PyTorch cannot use here ({reason}), expected {has}"]


def check_device(device: str, option: str = "device") -> None:
    """Raises ConfigError."""
    if problems := unusable(device, option):
        raise ConfigError(problems)
