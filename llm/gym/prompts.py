"""What a language model is told about a user's Gymnasium environment, and about what became of its rewards.

After Eureka (https://arxiv.org/abs/2310.12931) and stable-eureka, whose format of reflection this keeps: every quantity
over the evaluations with maximum, mean and minimum, then the best code. One request has no history: the best attempt so
far and the failures of the last iteration are all that a model sees, so prompts stay bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envolve.llm.gym.reward import MEMORY, METHOD, StepCall
from envolve.llm.gym.sample import Sample
from envolve.llm.search.reflection import points, shortened

TEXT_LIMIT, CODE_LIMIT, ERROR_LIMIT, MAX_KEYS = 12_000, 12_000, 1_500, 30
Messages = tuple[tuple[str, str], ...]

_SYSTEM = f"""\
You write reward functions for reinforcement learning. An agent is trained with your reward and then judged by a fitness
that you cannot change. Answer with a short explanation and one ```python block that holds the method
{METHOD}(self, ...), helper functions beside it if you like, and nothing else.

Rules; code that breaks one is refused, and you are told why:
- It returns (total, components): a number, and a dict of named numbers of which the total is made. All finite.
- Only np (numpy) and math, which are imported already. No other imports, no np.random, no printing, no files.
- Attributes of self, constants of the environment's file, and the arguments may be read. Nothing of them may be
  changed, and no method of self may be called.
- What has to be kept from one step to the next goes into the dict self.{MEMORY}, which is emptied at every reset:
  before = self.{MEMORY}.get("x", x); self.{MEMORY}["x"] = x
- for over a range or a list is fine; while, try, lambda, classes and names that begin with an underscore are not."""

_ADVICE = """\
Advice: reward progress densely, at every step; keep the components at comparable sizes; squash what can grow without
bound, e.g. with np.exp(-error / temperature), each with a temperature of its own; do not let the agent earn more by
staying alive than by finishing."""

_TIPS = """\
Go through the components one by one, then write the improved method:
1. One whose values hardly change, or move the wrong way, was not learned: change its scale or temperature, write it
   differently, or drop it.
2. One that is much larger than the others is all that counts: rescale it.
3. The fitness is the judge. If it did not rise over the training, try another idea."""


@dataclass(frozen=True)
class GymBrief:
    """Brief of one run. description, step: the user's texts. initial: the reward to begin with, None: none. call: how
    step calls the reward. pretrained: agents begin with the weights of the best so far."""

    description: str
    step: str
    call: StepCall | None
    initial: str | None = None
    pretrained: bool = False

    def messages(self, best: Sample | None, last: Sequence[Sample]) -> Messages:
        """best: of all iterations so far; last: the previous iteration's attempts, none before the first."""
        parts = [f"The task:\n{shortened(self.description.strip(), TEXT_LIMIT)}"]
        parts.append(f"The environment's step, which calls your method:\n```python\n{self._step()}\n```")
        if self.call is not None:
            parts.append(f"Its signature: def {METHOD}(self, {', '.join(_names(self.call))})")
        if not last and self.initial:
            parts.append(
                f"The reward to begin with; improve it:\n```python\n{shortened(self.initial, CODE_LIMIT)}\n```"
            )
        parts.append(_ADVICE)
        if last:
            parts += self._feedback(best, last)
        return (("system", _SYSTEM), ("user", "\n\n".join(parts)))

    def _step(self) -> str:
        return shortened(self.step.strip(), TEXT_LIMIT)

    def _feedback(self, best: Sample | None, last: Sequence[Sample]) -> list[str]:
        parts = []
        if best is not None:
            parts += [reflection(best), f"Its code, the best so far; improve it:\n```python\n{_code(best)}\n```"]
            if self.pretrained:
                parts.append("The next agent begins with the weights of the one that this reward trained.")
        failures = [s for s in last if s.failure and s.code]
        failures += [s for s in last if s.failure and not s.code]
        if failures:
            parts.append(
                f"{len(failures)} of the last {len(last)} attempts failed. Do not repeat their mistakes:\n"
                + "\n\n".join(_failure(s) for s in _different(failures)[:3])
            )
        if best is None and failures and failures[0].code:
            parts.append(f"The code of the first of them; mend it:\n```python\n{_code(failures[0])}\n```")
        scores = [f"{s.fitness:.4g}" for s in last if s.ok and s is not best]
        if scores:
            parts.append(f"Other attempts of the last iteration came to a fitness of {', '.join(scores)}.")
        return parts + [_TIPS if best is not None else "Write the method."]


def _names(call: StepCall) -> list[str]:
    """The arguments' names as step writes them; what is no name there becomes x0, x1, ..."""
    return [a if a.isidentifier() else f"x{i}" for i, a in enumerate(call.arguments)]


def _code(sample: Sample) -> str:
    return shortened(sample.code.strip(), CODE_LIMIT)


def _failure(sample: Sample) -> str:
    return f"- {shortened(sample.failure or '', ERROR_LIMIT)}"


def _different(samples: Sequence[Sample]) -> list[Sample]:
    return list({s.failure: s for s in reversed(samples)}.values())[::-1]


def reflection(sample: Sample) -> str:
    """The curves of one training, ten points each, with maximum, mean and minimum."""
    lines = [
        f"An agent was trained with the reward below; its final policy has a fitness of {sample.fitness:.6g} "
        f"(mean of {sample.episodes} episodes). Sums over an episode at points of the training, deterministic policy:"
    ]
    for name, values in list(sample.curves.items())[:MAX_KEYS]:
        known = [v for v in values if v is not None]
        if name == "timesteps" or not known:
            continue
        shown = ", ".join(f"{v:.4g}" for v in points(known))
        extremes = f"Max: {max(known):.4g} - Mean: {sum(known) / len(known):.4g} - Min: {min(known):.4g}"
        lines.append(f"{name}: [{shown}]. {extremes}")
    return "\n".join(lines)
