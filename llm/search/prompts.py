"""What language models are told and asked, for tasks in a physics engine.

After Eureka (Ma et al. 2023, https://arxiv.org/abs/2310.12931): role and signatures, the state, the task in the user's
words, advice; then the best code and what became of it. The words are our own, and differ where this project does: the
state is a table, not the environment's source, and what vetting refuses is said beforehand.

Messages stay bounded however long a run is: each attempt sees its parents alone (Eureka's history of 1), and what they
wrote or raised is cut to the limits below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envolve.envs.physics.task import SHAPER_TYPES, PhysicsTask
from envolve.llm.search.individual import CALL, NOVELTY, Individual, Messages
from envolve.llm.search.reflection import REFLECTION_LIMIT, notes_text, reflect, shortened
from envolve.llm.search.signatures import example, signature
from envolve.llm.search.task_facts import human_source, limits_text, other_names, state_table, task_facts

CODE_LIMIT, MESSAGE_LIMIT, DESCRIPTION_LIMIT = 12_000, 4_000, 8_000  # characters
MISTAKES, MISTAKE_LIMIT = 3, 400  # of other attempts: how many, characters

_ALLOWED = """\
Rules for the code. What breaks one is refused, and you are told why:
- Python with torch and math, nothing else; `torch`, `math` and `F` (torch.nn.functional) are imported already. Helper
  functions and constants beside the asked functions are fine.
- Every tensor is float32 and has n rows, one per environment; n changes from call to call, so take it from a shape.
  Row i of a result must depend on row i of what was given.
- Anything that depends on the value of a tensor is written with torch.where, clamp or comparisons times numbers: no
  `if`, `while`, `bool()`, `float()` or `.item()` on a tensor. `for` over range or over a list is fine.
- Indices are constant: numbers, slices, lists of numbers. No gather, sort, topk, cumsum or nonzero, and no picking of
  rows by a mask: the shape of a result may not depend on what is in a tensor.
- Never write into `state` or another argument; make new tensors. No randomness (torch.rand and its like){random}, no
  printing, files, f-strings, classes, try, lambda, generators or recursion. No name begins or ends with an underscore.
- New tensors take dtype and device from old ones: torch.zeros_like(x), x.new_tensor([0.0, 0.0, 1.0]).
- Results are finite for every state, also after a fall: keep divisors and arguments of sqrt and log away from 0, and
  limit what is squared or exponentiated."""

_ADVICE = """\
Advice:
- Name every number that might have to be changed, once, as a variable in the function: `speed_weight = 1.5`, then
  `speed_weight * speed`. These numbers are tuned by evolution afterwards, so that the structure is what counts most;
  numbers buried in expressions are hard to read back to you.
"""
_REWARD_ADVICE = """\
- Squash errors to a fixed range, for example torch.exp(-error / error_temperature), and give every squashed term a
  temperature of its own, named after it, of the size that the error typically has.
- Keep the terms at comparable magnitudes, a few units at most; a term that dwarfs the others is all that is learned.
- Reward what the judge scores, densely: every step, growing all the way to the goal. A penalty on effort or jerk helps
  only while it stays much smaller than what the task pays.
- Return every term under its name in the dictionary: their curves are how you will see what happened.
"""
_OBSERVATION_ADVICE = """\
- Bring what the policy sees to about the range [-1, 1], leave out what does not help, and express velocities and
  directions in the robot's own frame where the task is the same in every direction.
"""


@dataclass(frozen=True)
class Brief:
    """The prompts of one run. types: the functions to write, of SHAPER_TYPES; training: a sentence about the learner
    and its budget; show_human_reward: let the model see the task's own reward (Eureka does not). Raises ValueError for
    an unknown type, or none."""

    task: type[PhysicsTask]
    description: str
    types: tuple[str, ...]
    training: str = ""
    show_human_reward: bool = False

    def __post_init__(self) -> None:
        unknown = [t for t in self.types if t not in SHAPER_TYPES]
        if unknown or not self.types:
            found = repr(unknown[0]) if unknown else "none"
            raise ValueError(f"shaper types: found {found}, expected some of {', '.join(SHAPER_TYPES)}")

    # --------------------------------------------------------------------------------------------------- the operators

    def initial(self) -> Messages:
        return ("system", self.system()), ("user", self.user() + "\n\n" + self._ask())

    def improve(self, parent: Individual, human: Individual | None, refused: Sequence[Individual] = ()) -> Messages:
        """The parent's code as the model's own answer, then what became of it. refused: of the last attempts, to learn
        from."""
        text = (
            f"{reflect(parent, human, self.task.score_unit)}\n\n{_mistakes(refused)}"
            "First analyse in a few sentences what each part did and what held the score back. Then write a better "
            "version: keep what works, change, rescale, replace or drop what does not, and add what is missing. If the "
            f"score hardly rose at all, start from another idea. {self._answer()}"
        )
        return (*self._opening(), ("assistant", _fenced(parent.code)), ("user", text))

    def edit(self, parent: Individual, human: Individual | None, refused: Sequence[Individual] = ()) -> Messages:
        """Same as ``improve``, answered by changes of single places."""
        *opening, (role, text) = self.improve(parent, human, refused)
        return (*opening, (role, text.removesuffix(self._answer()) + _EDITS))

    def crossover(self, parents: Sequence[Individual], human: Individual | None) -> Messages:
        """Several codes with what became of each, and no answer yet."""
        parts = [self.user(), f"{len(parents)} earlier versions, trained in the same way:"]
        share = 2 * REFLECTION_LIMIT // max(2, len(parents)), 2 * CODE_LIMIT // max(2, len(parents))
        for k, parent in enumerate(parents, 1):
            reflection = shortened(reflect(parent, human, self.task.score_unit, advice=False), share[0])
            parts.append(f"Version {k}:\n{_fenced(parent.code, share[1])}\n\n{reflection}")
        parts.append(
            "Compare the versions: which idea of each earns its score, and which ideas complement one another? Then "
            f"write one new version that combines the best of them and beats them all. {self._answer()}"
        )
        return ("system", self.system()), ("user", "\n\n".join(parts))

    def repair(self, broken: Individual) -> Messages:
        """Its own code (or reply, if no code was found) and why it was refused or failed."""
        stage, message = broken.rejection or ("", broken.failure or "")
        message = shortened(message, MESSAGE_LIMIT) + notes_text(broken)
        if stage == NOVELTY:
            text = f"{message}\n\nWrite a version that is built differently. {self._answer()}"
        elif stage and stage != CALL:
            text = f"This was refused before training ({stage}):\n{message}\n\n{_FIX} {self._answer()}"
        else:
            text = f"This failed in training:\n{message}\n\n{_FIX} {self._answer()}"
        own = _fenced(broken.code) if broken.code else shortened(broken.reply, CODE_LIMIT) or "(nothing)"
        return (*self._opening(), ("assistant", own), ("user", text))

    # ------------------------------------------------------------------------------------------------------- the texts

    def system(self) -> str:
        """Role, signatures, rules, example: the same for the whole run."""
        facts = task_facts(self.task)
        what = " and ".join(f"`{t}`" for t in self.types)
        draws = any(t in ("compute_initial_state", "compute_goal") for t in self.types)
        parts = [
            "You are an engineer of reinforcement learning for robots. You shape environments: you write the functions "
            "that say what an agent is paid for, what it sees, what its actions do, when an episode ends or where it "
            f"begins, so that an agent trained with them does the task well. You are asked for {what}, as vectorised "
            "PyTorch over n environments at once.",
            "Exact signatures and results:\n" + "\n".join(signature(t, self.task, facts) for t in self.types),
            _ALLOWED.format(random=" other than the argument `random`" if draws else ""),
            _ADVICE
            + _REWARD_ADVICE * ("compute_reward" in self.types)
            + _OBSERVATION_ADVICE * ("compute_observation" in self.types)
            + f"\nConventions: {self.task.conventions}",
            "An example of the form, for another task, a blimp that is to hover at a height (its state has "
            '"height" [n] m, "target_height" [n] m, "climb_rate" [n] m/s, "fan_effort" [n, 2] N m):\n'
            + _fenced(example(self.types)),
        ]
        return "\n\n".join(parts)

    def user(self) -> str:
        """The task."""
        cls, facts = self.task, task_facts(self.task)
        limit = limits_text(facts.effort_limits)
        others = [t for t in SHAPER_TYPES if t not in self.types and (t != "compute_goal" or cls.goal_size)]
        parts = [
            f"Task ({cls.name}): {shortened(self.description, DESCRIPTION_LIMIT)}",
            f"The judge scores ({cls.score_unit}): {cls.score_meaning}. Higher is better. After the training the final "
            f"policy plays whole episodes of {cls.max_steps} control steps of {facts.dt:g} s each, which begin and end "
            "where the task itself has them begin and end, and the score is averaged over that time limit. Your reward "
            "is not part of the score; what the policy sees and what its actions mean are part of the policy.",
            f"The robot has {facts.efforts} actuator{'s' * (facts.efforts != 1)}"
            + (f", limited to {limit} (N m at hinges, N at slides)." if limit else "."),
            "The state, measured after every control step:\n" + state_table(cls, self._action_width()),
            other_names(cls),
        ]
        if others:
            parts.append(f"You do not write {', '.join(others)}: those are the task's own.")
        if self.training:
            parts.append(f"Training: {self.training}")
        if self.show_human_reward:
            parts.append(
                "The reward that a human wrote for this task, as a reference to beat (its style of types and constants "
                "is not yours to follow):\n" + _fenced(cls.reward_text or human_source(cls.compute_reward))
            )
        return "\n\n".join(parts)

    def _action_width(self) -> str:
        return "A" if "compute_torque" in self.types else str(self.task.action_size)

    def _opening(self) -> Messages:
        return ("system", self.system()), ("user", self.user() + "\n\n" + self._ask())

    def _ask(self) -> str:
        return f"Write {', '.join(self.types)} for this task. {self._answer()}"

    def _answer(self) -> str:
        functions = "the function" if len(self.types) == 1 else f"all {len(self.types)} functions"
        return f"Answer with one ```python block that holds {functions} in full, without placeholders."


def _mistakes(refused: Sequence[Individual]) -> str:
    """Reasons of the last refusals and failures, each once."""
    reasons: dict[str, None] = {}
    for i in refused:
        text = i.rejection[1] if i.rejection is not None else i.failure or ""
        if text and (i.rejection is None or i.rejection[0] not in (CALL, NOVELTY)):
            reasons[shortened(" ".join(text.split()), MISTAKE_LIMIT)] = None
    told = [f"- {reason}" for reason in list(reasons)[:MISTAKES]]
    return (
        "Other attempts did not get that far. Do not repeat their mistakes:\n" + "\n".join(told) + "\n\n"
        if told
        else ""
    )


_EDITS = """\
Answer with changes of single places of your code, a block for each, which may delete, replace or add lines:
<<<<<<< SEARCH
lines of the code, exactly as they are there
=======
the lines that take their place
>>>>>>> REPLACE
Lines that are in no block stay as they are. Write few changes, and only those that you have a reason for."""
_FIX = "Find the cause, say it in a sentence, and write the whole code again with it repaired and the idea kept."


def _fenced(code: str, limit: int = CODE_LIMIT) -> str:
    return f"```python\n{shortened(code.strip(), limit)}\n```"
