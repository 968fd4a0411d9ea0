"""Check of a PyTorch device on this machine, before anything runs on it."""

from __future__ import annotations

import torch

from envolve.outer.config.yaml_lines import ConfigError, show


def unusable(device: str, option: str = "--device") -> list[str]:
    """Problems with a device, at most one line; it names the option or key that chose the device."""
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
    """Raises ConfigError if the device is unusable."""
    if problems := unusable(device, option):
        raise ConfigError(problems)
