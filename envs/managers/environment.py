"""One environment of managers, ``ManagerBasedRlEnv`` of mjlab or ``ManagerBasedRLEnv`` of Isaac Lab, whose environments
belong to candidates: environment e to candidate e // N.

The library's own ``step`` and ``reset`` do the work. Around them, random numbers are the candidates' own
(``draws.py``), the environments of all candidates stand at the same places, and ``terms.py`` may change numbers of
terms.

Axes: P candidates, N environments each, R = P N, A numbers of an action.
"""

from __future__ import annotations

import contextlib
import io
import logging
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from envolve.envs.managers.draws import Draws
from envolve.envs.managers.library import Driver, Library
from envolve.envs.managers.terms import TermNumbers
from envolve.envs.sim.simulator import SimulatorError

log = logging.getLogger("envolve")


class EventShim:
    """An event's function that knows for which environments it draws."""

    def __init__(self, name: str, cfg: Any, owner: CandidateEnv) -> None:
        self.name, self.cfg, self.function, self.owner = name, cfg, cfg.func, owner
        self.others: List[Any] = []

    def __call__(self, env: Any, env_ids: Any, **params: Any) -> None:
        owner = self.owner
        if env_ids is None:  # all environments at once, by a clock that they share
            with owner.draws.of(None, shared=True):
                self.function(env, None, **params)
            return
        owner.numbers.fire(self.name, self.cfg, self, env_ids, params, owner.draws.of)

    def reset(self, env_ids: Any = None) -> Any:
        for other in self.others:
            other.reset(env_ids=env_ids)
        return self.function.reset(env_ids=env_ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


class CandidateEnv:
    """``step`` and ``reset`` of a library for all candidates.

    ``measure`` is called when a step's rewards are computed, ``place`` when a reset has put environments into their
    initial states, ``command`` when commands have been computed.
    """

    def __init__(
        self,
        library: Library,
        task: str,
        numbers: Sequence[Dict[str, float]],
        N: int,
        key: Tensor,
        device: str,
        make: Optional[Callable[..., Any]] = None,
    ) -> None:
        """numbers: of the task's terms by path, for each candidate; key: int64 [P]; make: of the environment from its
        configuration and device. Raises SimulatorError."""
        self.library, self.task = library, task
        self.P, self.N, self.R = len(numbers), N, len(numbers) * N
        self.device = torch.device(device)
        self.cfg = library.configuration(task, self.R, device)
        self.draws = Draws(key, N, self.device)
        self._until = contextlib.ExitStack()
        try:
            with quiet(), self.draws, self.draws.of(None, shared=True):  # startup comes before there are candidates
                self.env = make(self.cfg, device) if make else library.make(self.cfg, device, self._until)
        except Exception as e:  # a model that cannot be downloaded, a second simulation, ...
            self._until.close()
            if isinstance(e, SimulatorError):
                raise
            first = (str(e).splitlines() or [""])[0]
            raise SimulatorError(f"{library.title} cannot make {task}: {type(e).__name__}: {first}") from e
        self._until.callback(self.env.close)
        self.numbers = TermNumbers(self.env, self.cfg, numbers, N)
        self.driver: Driver = library.driver(self.env)
        self._full = False
        self.measure: Callable[[Tensor], None] = lambda reward: None
        self.place: Callable[[Tensor], None] = lambda ids: None
        self.command: Callable[[], None] = lambda: None
        self._same_places()
        self._hook()

    # ------------------------------------------------------------------------------------------------------- set up

    def _same_places(self) -> None:
        """Places every candidate's environments as those of a simulation of N."""
        terrain = self.env.scene.terrain
        if terrain is None or terrain.env_origins is None:
            return
        count, terrain.cfg.num_envs = terrain.cfg.num_envs, self.N
        try:
            if terrain.terrain_origins is None:
                terrain.configure_env_origins()
                terrain.env_origins = terrain.env_origins.repeat(self.P, 1)
            else:
                levels = terrain.terrain_levels
                with torch.random.fork_rng(devices=[]):  # the levels that it draws are not used
                    terrain.configure_env_origins(terrain.terrain_origins)
                terrain.terrain_levels, terrain.terrain_types = levels, terrain.terrain_types.repeat(self.P)
                terrain.env_origins = terrain.terrain_origins[levels, terrain.terrain_types]
        finally:
            terrain.cfg.num_envs = count

    def _hook(self) -> None:
        env = self.env
        for mode, names in env.event_manager.active_terms.items():
            for name in names if mode not in ("prestartup", "startup") else []:
                cfg = env.event_manager.get_term_cfg(name)
                cfg.func = EventShim(name, cfg, self)
        self._apply = env.event_manager.apply
        env.event_manager.apply = self._events
        for name in env.command_manager.active_terms:
            self._hook_command(name, env.command_manager.get_term(name))
        for method in ("compute", "reset"):
            self._hook_commands(env.command_manager, method)
        compute_rewards = env.reward_manager.compute

        def rewards(*args: Any, **kwargs: Any) -> Tensor:
            reward: Tensor = compute_rewards(*args, **kwargs)
            self.measure(reward)
            return reward

        env.reward_manager.compute = rewards

    def _hook_commands(self, manager: Any, method: str) -> None:
        original = getattr(manager, method)

        def commands(*args: Any, **kwargs: Any) -> Any:
            out = original(*args, **kwargs)
            self.command()
            return out

        setattr(manager, method, commands)

    def _hook_command(self, name: str, term: Any) -> None:
        original = term._resample

        def resample(env_ids: Tensor) -> None:
            self.driver.moved(env_ids)
            self.numbers.resample(name, term, original, env_ids, self.draws.of)

        term._resample = resample

    def _events(self, mode: str, env_ids: Any = None, dt: Optional[float] = None, **more: Any) -> None:
        if mode != "interval":
            self._apply(mode=mode, env_ids=env_ids, dt=dt, **more)
            if mode == "reset":
                self.place(env_ids)
            return
        manager = self.env.event_manager  # one by one, because each draws for the environments that are due
        every, times = manager._mode_term_cfgs[mode], manager._interval_term_time_left
        try:
            for cfg, left in zip(every, times):
                manager._mode_term_cfgs[mode], manager._interval_term_time_left = [cfg], [left]
                due = None if cfg.is_global_time else ((left - dt) < 1e-6).nonzero().flatten()
                with self.draws.of(due, shared=due is None):
                    self._apply(mode=mode, dt=dt)
        finally:
            manager._mode_term_cfgs[mode], manager._interval_term_time_left = every, times

    # ------------------------------------------------------------------------------------------------------- running

    def step(self, action: Tensor) -> None:
        """Makes one control step. action: [R, A]. No environment is reset."""
        with self.draws.watched(self.task):
            self.driver.step(action)
        dropped = None if self._full else self.driver.dropped()
        if dropped is not None:
            self._full = True  # warned of once
            log.warning("%s: %s", self.task, dropped)

    def reset(self, ids: Tensor) -> None:
        """Begins episodes in environments ids, int64."""
        with self.draws.watched(self.task), self.draws.of(ids):
            self.driver.reset(ids)

    def begin(self, key: Tensor) -> None:
        """Begins episodes everywhere, with random numbers of these keys [P]."""
        self.draws.begin(key)
        self.reset(torch.arange(self.R, device=self.device))

    @property
    def terminated(self) -> Tensor:
        """The task's own terminations of the last step, bool [R]."""
        found: Tensor = self.env.termination_manager.terminated
        return found

    @property
    def time_outs(self) -> Tensor:
        found: Tensor = self.env.termination_manager.time_outs
        return found

    def observation(self) -> Tensor:
        """What the task's own policy sees, float32 [R, F]."""
        return observation_of(self.env.obs_buf, self.task)

    def close(self) -> None:
        self._until.close()


def observation_of(groups: Dict[str, Any], task: str) -> Tensor:
    """The policy's group of observations, flat: "actor" or "policy", else the first."""
    name = next((n for n in ("actor", "policy") if n in groups), next(iter(groups), None))
    if name is None:
        raise SimulatorError(f"{task} has no observations")
    group = groups[name]
    parts: List[Tensor] = list(group.values()) if isinstance(group, dict) else [group]
    if any(not part.is_floating_point() or part.dim() > 3 for part in parts):
        raise SimulatorError(f"{task}'s policy sees pictures, which these learners do not read")
    return torch.cat([part.flatten(1) for part in parts], 1)


@contextlib.contextmanager
def quiet() -> Any:
    """Without the tables that the libraries print, and warp's list of compiled modules."""
    try:
        import warp

        warp.config.quiet = True
    except ImportError:
        pass
    with contextlib.redirect_stdout(io.StringIO()):
        yield


__all__ = ["CandidateEnv", "observation_of", "quiet"]
