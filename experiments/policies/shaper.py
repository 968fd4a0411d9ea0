"""The policy of a run of eval_shapers.py: best.pt, of the best candidate's best agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envolve.agents.common.normaliser import CLIP
from envolve.agents.shaped.training import evaluate, make_envs
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.nets.networks import ACTIVATIONS, MLPShape, forward
from envolve.envs.shaping.candidate import Candidate, candidate_name, load_candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments.policies.episodes import Episodes, PolicyError, read_policy_file
from envolve.outer.config.yaml_lines import ConfigError, parse_yaml
from envolve.outer.names import CONFIG_FILE, HUMAN
from envolve.outer.search.nes import RETEST, member_seeds
from envolve.outer.shapers.video import film

POLICY = "best.pt"
KINDS: dict[str, type] = {
    "weights": Tensor, "observation_mean": Tensor, "observation_scale": Tensor, "sizes": Tensor, "task": str,
    "candidate": str, "learner": str,
}  # fmt: skip
# learner -> (standard deviations before the actor per action, outputs of the actor per action)
LAYOUT = {"ppo": (1, 1), "sac": (0, 2), "td3": (0, 1)}


class StoredPolicy:
    """Stored policy with the interface of ``ShapedLearner``, as one candidate among one."""

    def __init__(self, content: dict[str, Any], activation: str, where: Path) -> None:
        """Raises PolicyError."""
        if content["learner"] not in LAYOUT or activation not in ACTIVATIONS or content["sizes"].shape != (4,):
            found = f"{content['learner'][:20]}, {activation!r}, {list(content['sizes'].shape)} sizes"
            raise PolicyError(f"{where}: found {found}, expected {', '.join(LAYOUT)}, {', '.join(ACTIVATIONS)}, 4")
        self.F, self.A, hidden, layers = map(int, content["sizes"])
        deviations, outputs = LAYOUT[content["learner"]]
        if min(self.F, self.A, hidden, layers) < 1 or max(self.F, self.A, hidden, layers) > 100_000:
            raise PolicyError(f"{where}: sizes: found {content['sizes'].tolist()}, expected positive sizes of a net")
        self.shape = MLPShape(self.F, outputs * self.A, hidden, layers, activation)
        begin = deviations * self.A
        weights, mean, scale = (content[n] for n in ("weights", "observation_mean", "observation_scale"))
        if weights.ndim != 1 or len(weights) < begin + self.shape.size or not mean.shape == scale.shape == (self.F,):
            raise PolicyError(f"{where}: found weights and a normaliser that do not fit the sizes that it names")
        self.actor = weights[None, begin : begin + self.shape.size].float().contiguous()
        self.mean, self.scale = mean.float(), scale.float()

    def act(self, obs: Tensor) -> Tensor:
        """[1, N, F] -> [1, N, A] in +-1."""
        seen = ((obs - self.mean) * self.scale).clamp(-CLIP, CLIP)
        with torch.no_grad():
            out = forward(self.shape, self.actor, seen.transpose(1, 2).contiguous())[:, : self.A]
        return torch.tanh(out).transpose(1, 2)


class ShaperPolicies:
    kind = "eval_shapers.py"
    names = [Path(POLICY).stem]

    def __init__(self, folder: Path, shaper: Path | None) -> None:
        """shaper: the candidate's file. A policy file does not choose what is imported: the user does. Raises
        ConfigError, PolicyError."""
        self.path = folder / POLICY
        self.content = read_policy_file(self.path, KINDS)
        config = self._config(folder / CONFIG_FILE)
        self.activation, self.types = config["hyperparameters"]["activation_fn"], config["settings"]["shaper_types"]
        self.task, name = self.content["task"], self.content["candidate"]
        if name == HUMAN:
            self.candidate = Candidate(HUMAN)
        elif shaper is None:
            trained = str(self.content.get("file", ""))
            words = f"found none, expected the file of candidate {name}, which this policy was trained with: {trained}"
            raise ConfigError([f"--shaper: {words} (it will be imported)"])
        else:
            self.candidate = self._load(shaper, name)

    def _config(self, path: Path) -> dict[str, Any]:
        try:
            raw, _ = parse_yaml(read_plain(path, TEXT_BYTES), str(path))
        except OSError as e:
            raise PolicyError(f"{path}: {e.strerror}; expected what eval_shapers.py writes beside {POLICY}") from None
        try:
            types, activation = raw["settings"]["shaper_types"], raw["hyperparameters"]["activation_fn"]
        except (TypeError, KeyError) as e:
            raise PolicyError(f"{path}: found no {e}, expected the settings of eval_shapers.py") from None
        if not isinstance(types, list) or not isinstance(activation, str):
            raise PolicyError(f"{path}: found {types}, {activation}; expected shaper types and an activation")
        return dict(raw)

    def _load(self, path: Path, name: str) -> Candidate:
        if candidate_name(path) != name:
            raise ConfigError([f"--shaper: found {path}, expected the file of candidate {name}"])
        if not path.is_file():
            raise ConfigError([f"--shaper: found no file {path}"])
        candidate = load_candidate(path, self.types)
        if candidate.failure is not None:
            raise ConfigError([f"--shaper: {path}: {candidate.failure}"])
        return candidate

    def _stage(self, episodes: int, seed: int) -> tuple[ShapedEnvs, StoredPolicy]:
        policy = StoredPolicy(self.content, self.activation, self.path)
        try:
            envs = make_envs(self.task, [self.candidate], episodes, member_seeds(seed, RETEST, 0, 1).tolist())
        except (SimulatorError, KeyError) as e:
            raise PolicyError(f"{self.path}: {e}") from None
        found = envs.observation_sizes[0], envs.action_sizes[0]
        if found != (policy.F, policy.A):
            envs.task.sim.close()
            expected = f"{policy.F} observations and {policy.A} actions"
            raise PolicyError(f"{self.path}: candidate {self.candidate.name} has {found}, expected {expected}")
        return envs, policy

    def play(self, name: str, episodes: int, seed: int) -> Episodes:
        """The task's true score of each episode."""
        envs, policy = self._stage(episodes, seed)
        lengths = torch.zeros(1, episodes)
        try:
            learner: Any = policy
            score = evaluate(envs, learner).numpy()
            if envs.failures:
                raise PolicyError(f"{self.path}: candidate {self.candidate.name} is out: {envs.failures[0]}")
            lengths += envs.task.max_steps
            unit, meaning = envs.task.score_unit, envs.task.score_meaning
        finally:
            envs.task.sim.close()
        return Episodes(score, f"score, {unit}: {meaning}", lengths.numpy())

    def film(self, name: str, member: int, seed: int, path: Path, score: str) -> None:
        envs, policy = self._stage(1, seed)
        learner: Any = policy
        try:
            key = int(member_seeds(seed, RETEST, 0, 1)[0])
            caption = f"{self.task}, {self.candidate.name}, seed {seed}, {score}"
            film(path, path.parent, envs, learner, 0, key, caption)
        finally:
            envs.task.sim.close()
