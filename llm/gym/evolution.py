"""Eureka's loop on a user's own Gymnasium environment: the command's ``--config`` (docs/gym_envs.md).

A language model writes ``compute_reward``; every sample is trained with Stable-Baselines3 in a locked process; the best
of all iterations is shown to the model again with its curves, and what failed with its reason. A run that was stopped
goes on where it was: replies come from calls.jsonl, finished trainings from their folders.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from envolve.core import commands, interrupt
from envolve.core.places import CODE
from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym import report, results
from envolve.llm.gym.allowlist import check_method
from envolve.llm.gym.config import load_gym_config
from envolve.llm.gym.finals import Finalist, best_first, final_seed, finalists, reject_copies
from envolve.llm.gym.prompts import GymBrief
from envolve.llm.gym.reward import METHOD, extract_method, step_call
from envolve.llm.gym.sample import Sample
from envolve.llm.gym.setup import MAX_USER_TEXT, GymOptions, checked_benchmark, find_env, run_folder
from envolve.llm.gym.train import MAX_MODEL, Job, Limits, Outcome, RunStopped, read_plain, run_jobs
from envolve.llm.models.chat import Call, Chat, ChatError, RecordingEnds, Reply, Request, Unanswered, make_chat, settled
from envolve.llm.vetting.jail import locks as jail
from envolve.llm.vetting.normal.normalise import normalise
from envolve.llm.vetting.text.extract import VetError
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.wandb_run import followed

NOTHING = "def compute_reward(self, *args, **kwargs):\n    return 0.0, {}\n"
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
    """What a user types to go on: the configuration must come out the same, and the models must be asked again."""
    words = [*commands.typed("auto_shape.py"), "--config", str(path), "--resume", str(folder)]
    for name in ("llm", "base_url", "seed", "json", "wandb"):
        if (value := getattr(options, name)) is not None:
            words += ["--" + name.replace("_", "-"), str(value)]
    words += ["--set", *options.set] * bool(options.set)
    return shlex.join(words + ["--allow-unprotected"] * options.allow_unprotected)


class GymRun:
    """One run. Raises ConfigError, ChatError, OSError before anything is asked or trained."""

    def __init__(self, path: Path, options: GymOptions, console: Console) -> None:
        if importlib.util.find_spec("stable_baselines3") is None:
            raise ConfigError(["--config: found no Stable-Baselines3, expected it: pip install 'envolve[baselines]'"])
        overrides = [*options.set]
        if options.seed is not None:
            overrides.append(f"rl.training.seed={options.seed}")
        self.config = checked_benchmark(load_gym_config(path, overrides))
        self.options, self.console = options, console
        self.env = find_env(self.config.environment.name, self._places(path))
        unprotected = options.allow_unprotected or jail.opted_out()
        self.limits = Limits(options.seconds, options.memory, allow_unprotected=unprotected)
        if not unprotected and jail.missing():
            raise ConfigError([f"this machine cannot jail model-written code: no {', no '.join(jail.missing())}"])
        self._chat(None).close()  # a wrong name, a missing key: before there is a folder
        self.folder = self._folder()
        self.chat = self._chat(self.folder / "calls.jsonl")
        eureka, pre = self.config.eureka, self.config.eureka.pretraining_with_best_model
        initial = self.env.initial if eureka.use_initial_reward_prompt else None
        if eureka.use_initial_reward_prompt and initial is None:
            log.warning("use_initial_reward_prompt: %s has no initial_reward_prompt.txt", self.env.folder)
        self.call = step_call(self.env.step)
        self.brief = GymBrief(self.env.description, self.env.step, self.call, initial, pre)
        self.samples: list[Sample] = []
        self.said: set[str] = set()
        self.benchmark: Sample | None = None
        self.finals: list[Finalist] = []  # best first

    def _places(self, path: Path) -> list[Path]:
        beside = [Path("envs"), path.resolve().parent / "envs", path.resolve().parents[1] / "envs", CODE / "envs"]
        return [p.resolve() for p in ([self.options.envs] if self.options.envs else []) + beside]

    def _folder(self) -> Path:
        """New run folder, or that of the run to resume, with the same configuration."""
        now = self.config.model_dump_json(indent=1).encode()
        if self.options.resume is None:
            folder = run_folder(self.config, self.options.results_dir)
            write_atomic(str(folder / "config.json"), now)
            return folder.resolve()
        folder = self.options.resume
        before = read_plain(folder / "config.json", MAX_USER_TEXT)
        if before is None:
            raise ConfigError([f"--resume {folder}: found no config.json, expected the folder of a run"])
        if before != now:
            changed = "found another configuration than the run began with, expected the same file, --set and --seed"
            raise ConfigError([f"--resume {folder}: {changed}"])
        return folder.resolve()

    def _chat(self, record: Path | None) -> Chat:
        eureka = self.config.eureka
        prefix = {"ollama": "ollama:", "replay": "replay:", "openai": ""}[eureka.backend]
        name = self.options.llm or prefix + eureka.model
        chat = make_chat(
            [name],
            self.options.base_url,
            record,
            budget=self.options.budget,
            prices=self.options.prices,
            parallel=self.options.parallel,
            timeout=self.options.timeout,
            seed=self.config.rl.training.seed,
        )
        self.waits = name.startswith("ollama:")
        return chat

    # ------------------------------------------------------------------------------------------------------- loop

    def execute(self) -> int:
        console, eureka = self.console, self.config.eureka
        console.print(f"Results: {self.folder}", markup=False, soft_wrap=True)
        self._check_env()
        for iteration in range(eureka.iterations):
            if iteration and self.waits and eureka.sleep_time_per_iteration:
                console.print(f"Waiting {eureka.sleep_time_per_iteration:g} min (sleep_time_per_iteration)")
                time.sleep(60 * eureka.sleep_time_per_iteration)
            if not self._iteration(iteration):
                break
        self._test()
        best = self.best()
        final = self._judge(best) if best is not None else None
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

    def _check_env(self) -> None:
        """Checks the user's environment without a reward in the jail, before any call is paid."""
        job = Job(self.folder / "check", "check", self.config, 0, self.env.folder, NOTHING)
        for _, outcome in run_jobs([job], 1, self.limits):
            if outcome.error is not None:
                raise RunStopped(f"{self.env.folder}: {outcome.error}")
            for name, space in outcome.spaces.items():
                self.console.print(f"{name}: {space}", markup=False)
            self._warn(outcome.notes)

    def _warn(self, texts: Sequence[str]) -> None:
        """Logs each warning once per run: it often applies to all trainings."""
        for text in texts:
            if text not in self.said:
                log.warning("%s", text)
        self.said.update(texts)

    def _iteration(self, iteration: int) -> bool:
        """One iteration: asks, trains, reports -> whether there is a next one. Raises Unanswered: what is asked next
        depends on it."""
        eureka = self.config.eureka
        last = [s for s in self.samples if s.iteration == iteration - 1]
        best = report.best_of(self.samples)
        messages = self.brief.messages(best, last)
        model, seed = self.chat.models[0], self.config.rl.training.seed
        calls = [
            Call(n, Request(model, messages, eureka.temperature, self.options.max_tokens, seed + n))
            for n in range(iteration * eureka.samples, (iteration + 1) * eureka.samples)
        ]
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
        self._train(samples, iteration, best)
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

    def _train(self, samples: Sequence[Sample], iteration: int, best: Sample | None) -> None:
        """Trains samples without a result; with the first iteration also the benchmark."""
        by_folder: dict[Path, Sample] = {}
        jobs = []
        seed = self.config.rl.training.seed
        if iteration == 0 and self.config.environment.benchmark is not None:
            self.benchmark = Sample(0, 0, self.folder / "benchmark")
            if not self.benchmark.load():
                jobs.append(Job(self.benchmark.folder, "train", self.config, seed))
                by_folder[self.benchmark.folder] = self.benchmark
        start = best.model if best is not None and self.config.eureka.pretraining_with_best_model else None
        for s in samples:
            if s.failure is not None:
                s.save()
            if s.failure is not None or s.load():
                continue
            jobs.append(Job(s.folder, "train", self.config, seed, self.env.folder, s.code, start))
            by_folder[s.folder] = s
        self._run(jobs, by_folder)

    def _run(self, jobs: list[Job], by_folder: dict[Path, Sample]) -> None:
        """Trains them and stores what became of them."""
        parallel = self.options.processes or len(os.sched_getaffinity(0))
        for job, outcome in run_jobs(jobs, parallel, self.limits):
            sample = by_folder[job.folder]
            self._take(sample, outcome)
            sample.save()

    def _test(self) -> None:
        """Trains the finalists anew, with seeds that the search has not used."""
        eureka, seed = self.config.eureka, self.config.rl.training.seed
        finals = finalists(self.samples, eureka.finalists, eureka.final_seeds, self.folder)
        by_folder = {run.folder: run for f in finals for run in f.runs if not run.load()}
        if by_folder:
            text = f"Last test: {eureka.final_seeds} trainings for each of {len(finals)}"
            self.console.print(text, markup=False)
        jobs = [
            Job(run.folder, "train", self.config, final_seed(seed, k), self.env.folder, run.code)
            for f in finals
            for k, run in enumerate(f.runs)
            if run.folder in by_folder
        ]
        self._run(jobs, by_folder)
        self.finals = best_first(finals)

    def best(self) -> Sample | None:
        """Best attempt: of the last test, if there was one."""
        return self.finals[0].sample if self.finals else report.best_of(self.samples)

    def _take(self, sample: Sample, outcome: Outcome) -> None:
        rl = self.config.rl
        sample.take(outcome, max(rl.training.eval.num_episodes, rl.evaluation.num_episodes))
        name = "benchmark" if sample is self.benchmark else sample.name
        name += f", {sample.folder.name}" * (sample.folder.name.startswith("seed_"))
        self._warn(outcome.notes)
        if outcome.kind == "jail":
            raise RunStopped(outcome.error or "this machine cannot jail")
        what = f"fitness {sample.fitness:.6g}" if sample.ok else (sample.failure or "").strip().splitlines()[-1]
        self.console.print(f"  {name}: {what}", markup=False)

    # ---------------------------------------------------------------------------------------------------- results

    def _judge(self, best: Sample) -> Outcome | None:
        """Tests and films the best policy in new episodes -> eval.json, eval.gif."""
        if best.model is None:
            return None
        folder = self.folder / "judgement"
        seed = self.config.rl.training.seed
        job = Job(folder, "film", self.config, seed, self.env.folder, best.code, best.model)
        (_, outcome), *_ = list(run_jobs([job], 1, self.limits))
        if outcome.error is not None:
            log.warning("no final evaluation of %s: %s", best.name, outcome.error)
            return outcome
        self._warn([note for note in outcome.notes if not note.startswith("warm start: from")])
        for name in ("eval.json", "eval.gif"):
            data = read_plain(folder / "out" / name, MAX_MODEL)
            if data is not None:
                write_atomic(str(self.folder / name), data)
        return outcome
