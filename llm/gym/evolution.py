"""Eureka's loop on a user's own Gymnasium environment: the command's ``--config`` (docs/gym_envs.md).

A language model writes ``compute_reward``; every sample is trained with Stable-Baselines3 in a locked process; the best
of all iterations is shown to the model again with its curves, and what failed with its reason. A run that was stopped
goes on where it was: replies come from calls.jsonl, finished trainings from their folders.
"""

from __future__ import annotations

import logging
import shlex
import time
from pathlib import Path

from rich.console import Console

from envolve.core import commands, interrupt
from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym import report, results
from envolve.llm.gym.allowlist import check_method
from envolve.llm.gym.finals import Finalist, reject_copies
from envolve.llm.gym.prompts import GymBrief
from envolve.llm.gym.reward import METHOD, extract_method, step_call
from envolve.llm.gym.sample import Sample
from envolve.llm.gym.setup import GymOptions, prepare
from envolve.llm.gym.train import RunStopped
from envolve.llm.gym.trainings import BENCHMARK, Trainings
from envolve.llm.models.chat import ChatError, RecordingEnds, Reply, Unanswered, settled
from envolve.llm.models.request import Sampling
from envolve.llm.vetting.normal.normalise import normalise
from envolve.llm.vetting.text.extract import VetError
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.wandb_run import followed

log = logging.getLogger("envolve")


def run_config(path: Path, options: GymOptions = GymOptions(), console: Console | None = None) -> int:  # noqa: B008
    """Evolves rewards as configured by the YAML file -> exit code: 0 the best reward has a fitness, 1 no reward has one
    or the run cannot continue, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM (resumable)."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(file=console.file, highlight=False, width=140)  # a table is not squeezed into a pipe
    try:
        run = GymRun(path, options, console)
    except (ConfigError, ChatError) as e:
        log.error("%s", e)
        return 2
    except OSError as e:
        log.error("%s: %s", e.filename, e.strerror)
        return 2
    go_on = f"continue with: {resume_command(path, options, run.folder)}"
    interrupt.advise(go_on)
    try:
        with locked(run.folder), followed(options.wandb, run.folder), run.chat:
            return run.execute()
    except KeyboardInterrupt:
        return interrupt.stopped("auto_shape.py", go_on)
    except Unanswered as e:
        log.error("%s; %s", e, go_on)
        return 1
    except (ChatError, RunStopped, RunError) as e:
        log.error("%s", e)
        return 1


def resume_command(path: Path, options: GymOptions, folder: Path) -> str:
    """What a user types to go on: the configuration must come out the same, the models must be asked again, and what
    was limited stays so."""
    words = [*commands.typed("auto_shape.py"), "--config", str(path), "--resume", str(folder)]
    usual = _flags(GymOptions())
    for name, value in _flags(options).items():
        if value != usual[name]:
            words += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    prices = [f"{model}={price.prompt:g},{price.completion:g}" for model, price in options.prices.items()]
    words += ["--price", *prices] * bool(prices)
    words += ["--set", *options.set] * bool(options.set)
    return shlex.join(words + ["--allow-unprotected"] * options.allow_unprotected)


def _flags(options: GymOptions) -> dict[str, object]:
    """Flags of one value each."""
    names = ("llm", "base_url", "seed", "json", "wandb", "max_tokens", "parallel", "timeout", "processes")
    return {
        **{"--" + name.replace("_", "-"): getattr(options, name) for name in names},
        "--budget-usd": options.budget.usd,
        "--budget-tokens": options.budget.tokens,
        "--memory": options.memory / 2**30,
        "--hours": options.seconds / 3600,
    }


class GymRun:
    """One run. Raises ConfigError, ChatError, OSError before anything is asked or trained."""

    def __init__(self, path: Path, options: GymOptions, console: Console) -> None:
        made = prepare(path, options)
        self.options, self.console = options, console
        self.config, self.folder, self.chat, self.waits = made.config, made.folder, made.chat, made.waits
        eureka = self.config.eureka
        self.call = step_call(made.env.step)
        initial = made.env.initial if eureka.use_initial_reward_prompt else None
        self.brief = GymBrief(
            made.env.description, made.env.step, self.call, initial, eureka.pretraining_with_best_model
        )
        self.sampling = Sampling(eureka.temperature, options.max_tokens, self.config.rl.training.seed)
        self.trainings = Trainings(self.config, made.env.folder, self.folder, made.limits, options.processes, console)
        self.samples: list[Sample] = []
        self.benchmark: Sample | None = None
        self.finals: list[Finalist] = []  # best first

    def execute(self) -> int:
        console, eureka = self.console, self.config.eureka
        console.print(f"Results: {self.folder}", markup=False, soft_wrap=True)
        self.trainings.check_env()
        for iteration in range(eureka.iterations):
            if iteration and self.waits and eureka.sleep_time_per_iteration:
                console.print(f"Waiting {eureka.sleep_time_per_iteration:g} min (sleep_time_per_iteration)")
                time.sleep(60 * eureka.sleep_time_per_iteration)
            if not self._iteration(iteration):
                break
        self.finals = self.trainings.last_test(self.samples)
        best = self.best()
        final = self.trainings.judge(best) if best is not None else None
        results.write(self, final)
        if self.options.json is not None:
            report.write_json(self.options.json, results.result(self, final))
        name = self.config.environment.name
        console.print(report.table(self.samples, self.benchmark, f"{name}: fitness of the final policies"))
        if best is None:
            log.error("no attempt has a fitness; the reasons are in the table and in %s", self.folder)
            return 1
        if final is not None and final.error is None:
            asked = self.config.rl.evaluation
            text = f"fitness {final.fitness:.6g} in {asked.num_episodes} new episodes (seed {asked.seed})"
            for f in self.finals:
                shown = ", ".join(f"{x:.6g}" for x in f.scores)
                console.print(f"  {f.sample.name}, trained anew: {shown}; mean {f.mean:.6g}", markup=False)
            console.print(
                f"Best: {best.name}, {text}; its code: {self.folder / 'best_reward.py'}", markup=False, soft_wrap=True
            )
        return 0

    def _iteration(self, iteration: int) -> bool:
        """One iteration: asks, trains, reports -> whether there is a next one. Raises Unanswered: what is asked next
        depends on it."""
        eureka = self.config.eureka
        last = [s for s in self.samples if s.iteration == iteration - 1]
        best = report.best_of(self.samples)
        messages = self.brief.messages(best, last)
        model = self.chat.models[0]
        numbers = range(iteration * eureka.samples, (iteration + 1) * eureka.samples)
        calls = [self.sampling.call(n, model, messages) for n in numbers]
        self.console.print(f"Iteration {iteration}: asking {model} for {len(calls)} rewards", markup=False)
        replies = self.chat.ask(calls)
        ends = settled(replies)
        if ends:
            log.warning("%s", ends)
        samples = []
        for j, reply in enumerate(replies):
            if isinstance(reply, RecordingEnds):
                break
            sample = Sample(iteration, j, self.folder / "code" / f"iteration_{iteration}" / f"sample_{j}")
            if isinstance(reply, Reply):
                self._read(sample, reply)
            else:
                sample.fail("call", str(reply))
            samples.append(sample)
        if not samples:
            return False
        if eureka.skip_copies and not eureka.pretraining_with_best_model:
            reject_copies(samples, self.samples)
        if iteration == 0 and self.config.environment.benchmark is not None:
            self.benchmark = Sample(0, 0, self.folder / BENCHMARK)
        self.trainings.train(samples, best, self.benchmark if iteration == 0 else None)
        self.samples += samples
        text = report.markdown(iteration, messages, samples)
        write_atomic(str(self.folder / f"iteration_{iteration}.md"), text.encode("utf-8", "replace"))
        results.write(self, None)
        return not ends

    def _read(self, sample: Sample, reply: Reply) -> None:
        sample.reply = reply.text
        try:
            found = normalise(extract_method(reply.text), [METHOD], torch=False)
            sample.code = found.code
            sample.notes += found.notes
            check_method(sample.code, self.call)
        except VetError as e:
            cut = " (the reply was cut at max_tokens)" if reply.finish == "length" else ""
            sample.fail(e.stage, e.message + cut)

    def best(self) -> Sample | None:
        """Best attempt: of the last test, if there was one."""
        return self.finals[0].sample if self.finals else report.best_of(self.samples)
