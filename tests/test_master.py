"""GTN_master.py as a user meets it: arguments, messages, Ctrl-C, workers of every origin, a terminal."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import envolve.outer.run
from envolve.experiments import run as GTN_master
from envolve.outer.checkpoint import CheckpointError, RunError, locked
from envolve.outer.config.load import dump_config
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.search.strategy import SearchError
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, CLIFF, GRIDWORLD_FILE, ROOT, cliff, default_sigint
from tests.outer.test_run import Direct, files, go

GRIDWORLD, CARTPOLE_SE = str(GRIDWORLD_FILE), str(CARTPOLE_FILE)
ORIGINAL = str(ROOT / "tests" / "fixtures" / "original_configs" / "default_config_cartpole_syn_env.yaml")
LONG = (*CLIFF, "agents.gtn.max_iterations=30")  # a second or two


@pytest.fixture()
def master(monkeypatch, tmp_path, capsys):
    """main() in this process, in an empty directory -> exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    sigterm, hook = signal.getsignal(signal.SIGTERM), threading.excepthook

    def call(*args):
        try:
            code = GTN_master.main([str(a) for a in args])
        except SystemExit as e:
            code = e.code
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    yield call
    logging.getLogger().handlers, logging.getLogger().level = handlers, level
    signal.signal(signal.SIGTERM, sigterm)
    threading.excepthook = hook


# -------------------------------------------------------------------------------- arguments


def test_help(master):
    code, out, _ = master("--help")
    assert code == 0
    for text in ("--single", "--resume DIR", "--set KEY=VALUE", "--check", "envolve worker 0 0 &", "130"):
        assert text in out


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "agents.gtn.max_iterations=3", "agents.ql.alpha=0.25"],
        ["--set", "agents.gtn.max_iterations=3", "--set", "agents.ql.alpha=0.25"],
    ],
)
@pytest.mark.parametrize("config_last", [True, False])
def test_check_prints_what_would_run_and_starts_nothing(master, tmp_path, words, config_last):
    """Both forms of --set, and a CONFIG that --set would swallow."""
    args = [*words, "--seed", "7", GRIDWORLD] if config_last else [GRIDWORLD, *words, "--seed", "7"]
    code, out, err = master(*args, "--check")
    assert code == 0 and err == ""
    assert "Cliff" in out and "at most 3 generations" in out and "alpha 0.25" in out and "cpu, 7" in out
    assert os.listdir(tmp_path) == []


def test_config_directly_after_set(master):
    code, out, _ = master("--check", "--set", "agents.gtn.max_iterations=3", GRIDWORLD)
    assert code == 0 and "at most 3 generations" in out


def test_warnings_are_printed_once(master):
    code, out, err = master(ORIGINAL, "--check")
    lines = err.splitlines()
    assert code == 0 and lines and all(line.startswith("warning: ") for line in lines)
    assert len(set(lines)) == len(lines) and "warning" not in out


def edited(tmp_path, old, new):
    path = tmp_path / "edited.yaml"
    text = Path(GRIDWORLD).read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    "old,new,expected",
    [
        ("env_name: Cliff ", "env_name: Clif ", "env_name: found 'Clif', expected .* did you mean Cliff"),
        ("noise_std: 0.1 ", "noise_std: -1 ", r"agents.gtn.noise_std: found -1, expected .*> 0"),
        ("noise_std: 0.1 ", "noise_sdt: 0.1 ", "agents.gtn.noise_sdt: found an unknown key, .*did you mean noise_std"),
        ("agents: ", "agents: [", "edited.yaml:"),
        ("    mode: multi", "   mode: multi", "edited.yaml:"),
    ],
)
def test_bad_configuration(master, tmp_path, old, new, expected):
    code, out, err = master(edited(tmp_path, old, new), "--single")
    assert code == 2 and out == "" and re.search(expected, err), err
    assert len(err.splitlines()) == 1 and "edited.yaml:" in err
    assert os.listdir(tmp_path) == ["edited.yaml"], "nothing was started"


@pytest.mark.parametrize(
    "args,expected",
    [
        (["default_config_cartpole_syn_en.yaml"], "found no readable file"),
        ([], "found no CONFIG"),
        ([GRIDWORLD, "--workers", 0], "--workers: found 0, expected at least 1"),
        ([GRIDWORLD, "--bohb-id", -1], "--bohb-id: found -1, expected at least 0"),
        ([GRIDWORLD, "--seed", -1], "seed: found -1"),
        ([GRIDWORLD, "--set", "agents.gtn.max_iteration=3"], "did you mean agents.gtn.max_iterations"),
        ([GRIDWORLD, "--set", "max_iterations"], "found no '=', expected key=value"),
        (["--resume", "results/nothing"], "found no config.yaml in 'results/nothing', expected the folder of a run"),
        ([GRIDWORLD, "--resume", "results/nothing"], "found CONFIG, expected none"),
        (["--resume", "results/nothing", "--seed", 1], "found --seed, expected none"),
    ],
)
def test_bad_arguments(master, tmp_path, args, expected):
    code, out, err = master(*args)
    assert code == 2 and out == "" and expected in err and len(err.splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_unknown_option(master):
    code, _, err = master(GRIDWORLD, "--singel")
    assert code == 2 and "--singel" in err


# -------------------------------------------------------------------------------- what stands in the way


def test_results_dir_is_a_file(master, tmp_path):
    (tmp_path / "results").write_text("")
    code, _, err = master(GRIDWORLD, "--single")
    assert code == 1 and "results" in err and "choose another folder with --results-dir" in err
    assert len(err.splitlines()) == 1


def test_sync_dir_is_a_file(master, tmp_path):
    (tmp_path / "sync").write_text("")
    code, _, err = master(GRIDWORLD, "--sync-dir", "sync")
    assert code == 1 and "cannot make the sync folder" in err and "--sync-dir" in err and len(err.splitlines()) == 1
    assert "is a file; choose a folder" in err
    assert os.listdir(tmp_path / "results") == [], "the folder of a run that never was is not left behind"


def test_results_dir_on_a_full_disk(master, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = master(GRIDWORLD, "--single")
    assert code == 1 and re.search(r"config.yaml: No space left on device; free some space\n", err)
    assert len(err.splitlines()) == 1 and os.listdir(tmp_path / "results") == []


def test_second_master_on_the_same_sync_folder(master, tmp_path):
    with Dispatcher(str(tmp_path / "sync"), 0, "first"):
        code, _, err = master(GRIDWORLD, "--sync-dir", "sync")
        assert code == 1 and "another master with BOHB-ID 0 is running" in err and "run first" in err
        assert "--bohb-id or --sync-dir" in err and len(err.splitlines()) == 1
        assert os.listdir(tmp_path / "results") == []


# -------------------------------------------------------------------------------- a device that is not here

CUDA = ("--set", "device=cuda:99")


@pytest.mark.parametrize("words", [["--single"], ["--workers", "2"], ["--set", "agents.gtn.mode=single"]])
@pytest.mark.parametrize("check", [[], ["--check"]])
def test_local_workers_need_the_device_here(master, tmp_path, words, check):
    code, _, err = master(GRIDWORLD, *CUDA, *words, *check)
    assert code == 2 and "device: found 'cuda:99', which PyTorch cannot use here" in err and len(err.splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_workers_on_other_machines_may_have_the_device(master):
    code, out, err = master(GRIDWORLD, *CUDA, "--check")
    assert code == 0 and "Cliff" in out
    assert err.startswith("warning: device: found 'cuda:99'") and "workers on other machines may have it" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "words, here",
    [([], False), (["--single"], True), (["--workers", "2", "--workers-on", "ray"], True),
     (["--workers", "2", "--workers-on", "ray:host:1"], False)],
)  # fmt: skip
def test_where_workers_are_started(words, here):
    args = GTN_master.build_parser().parse_args([GRIDWORLD, *words])
    assert GTN_master.workers_here(args, cliff()) == here


@pytest.fixture()
def stopped_run(tmp_path):
    """results/run, stopped in generation 4 of 6."""
    folder = tmp_path / "results" / "run"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(cliff()))
    with pytest.raises(KeyboardInterrupt):
        go(cliff(), folder, dispatcher=Direct(stop_at=3))
    return folder


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_two_masters_on_one_run(master, stopped_run):
    before = contents(stopped_run)
    with locked(stopped_run):
        code, _, err = master("--resume", stopped_run, "--bohb-id", 3)
    assert code == 1 and "another process is working on this run" in err and contents(stopped_run) == before
    assert "continue with" not in err


@pytest.mark.parametrize(
    "name,change,expected",
    [
        ("checkpoint.pt", lambda b: b[: len(b) // 2], "checkpoint.pt: damaged"),
        ("checkpoint.pt", lambda b: b[:-40] + bytes(40), "checkpoint.pt: damaged"),
        ("config.yaml", lambda b: b.replace(b"noise_std: 0.1", b"noise_std: 0.2"), "another configuration .* undo the"),
        ("scores.csv", lambda b: b"x" + b, "scores.csv: first line is"),
        ("config.yaml", lambda b: b.replace(b"noise_std: 0.1", b"noise_std: -1"), "noise_std: found -1"),
    ],
)
def test_resume_of_a_tampered_run(master, stopped_run, name, change, expected):
    """Told in one line; what is there stays as it is; put right, the run goes on."""
    original = contents(stopped_run)
    (stopped_run / name).write_bytes(change(original[name]))
    tampered = contents(stopped_run)
    assert tampered != original
    code, _, err = master("--resume", stopped_run)
    assert code in (1, 2) and re.search(expected, err), err
    complaint = [line for line in err.splitlines() if line.startswith("GTN_master.py: ")]
    assert len(complaint) == 1
    assert {k: v for k, v in contents(stopped_run).items() if k in tampered} == tampered
    (stopped_run / name).write_bytes(original[name])
    text, _ = go(cliff(), stopped_run, resume=True)
    assert "resumed at generation 4" in text


@pytest.fixture()
def begun(master, tmp_path, monkeypatch):
    """How a run is called -> its folder, with nothing in it but what prepare() leaves."""

    def begin(*words):
        args = GTN_master.build_parser().parse_args([GRIDWORLD, *words])
        return GTN_master.prepare(args, GTN_master.read_config(args))

    return begin


@pytest.fixture()
def conducted(monkeypatch):
    """What main() hands to conduct(), which does nothing."""
    calls = []
    monkeypatch.setattr("envolve.outer.launch.conduct", lambda *args, **kwargs: calls.append(kwargs) or "done")
    return calls


def test_resume_meets_the_workers_where_the_run_was_begun(master, begun, conducted, tmp_path, monkeypatch):
    folder = begun("--sync-dir", "ex change", "--bohb-id", "3")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, err = master("--resume", folder.absolute() if folder.is_absolute() else tmp_path / folder)
    sync = str(tmp_path / "ex change")
    assert code == 0 and err == f"as the run was begun: --sync-dir '{sync}' --bohb-id 3\n"
    assert (conducted[0]["sync_dir"], conducted[0]["bohb_id"], conducted[0]["workers"]) == (sync, 3, None)
    code, _, err = master("--resume", tmp_path / folder, "--sync-dir", "here", "--bohb-id", "0")
    assert code == 0 and err == ""
    assert (conducted[1]["sync_dir"], conducted[1]["bohb_id"]) == ("here", 0)
    code, _, err = master("--resume", tmp_path / folder, "--workers", "2")  # its own, with an exchange of their own
    assert err == "" and (conducted[2]["workers"], conducted[2]["bohb_id"]) == (2, 0)
    assert conducted[2]["sync_dir"] == str(tmp_path / folder / "sync")


def test_resume_of_local_workers_in_a_folder_that_was_named(master, begun, conducted, tmp_path):
    folder = begun("--single", "--sync-dir", "s")
    code, _, err = master("--resume", folder)
    assert code == 0 and err == f"as the run was begun: --sync-dir {tmp_path / 's'} --single\n"
    assert conducted[0]["sync_dir"] == str(tmp_path / "s") and conducted[0]["workers"] == len(os.sched_getaffinity(0))


def test_resume_of_a_run_that_named_nothing(master, begun, conducted):
    folder = begun()
    assert master("--resume", folder)[::2] == (0, "")
    assert (conducted[0]["sync_dir"], conducted[0]["bohb_id"]) == (str(folder.parent / "GTN_sync"), 0)


@pytest.mark.parametrize(
    "error, left, advised",
    [
        (RunError("no worker"), "checkpoint.pt", True),
        (RunError("no worker"), "started", False),
        (RunError("no worker"), "experts/0.pt", True),
        (MemoryError(), "experts/0.pt", True),
        (ExchangeError("worker 3 failed: std::bad_alloc"), "checkpoint.pt", True),
        (MemoryError(), "scores.csv", False),
        (SearchError("my_search.py: tell raised"), "checkpoint.pt", False),
        (CheckpointError("damaged"), "checkpoint.pt", False),
    ],
)
def test_going_on_is_advised_where_it_helps_and_nothing_is_lost(master, begun, monkeypatch, error, left, advised):
    folders = []

    def fails(config, run_dir, **kwargs):
        folders.append(run_dir.absolute())
        (run_dir / left).parent.mkdir(exist_ok=True)
        (run_dir / left).write_bytes(b"work")
        raise error

    monkeypatch.setattr("envolve.outer.launch.conduct", fails)
    code, _, err = master(GRIDWORLD)
    assert code == 1 and ("finished generations are kept; continue with" in err) == advised, err
    assert (folders[0] / left).read_bytes() == b"work"


def test_a_run_that_left_nothing_leaves_no_folder(master, begun, monkeypatch, tmp_path):
    def fails(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("envolve.outer.launch.conduct", fails)
    code, _, err = master(GRIDWORLD)
    assert code == 1 and "not enough memory" in err and not list((tmp_path / "results").iterdir())


def test_what_a_user_is_told_to_type():
    parse = GTN_master.build_parser().parse_args
    command = GTN_master.resume_command
    run_dir = Path("results/my run")
    assert command(parse([GRIDWORLD, "--single"]), run_dir) == "python3 GTN_master.py --resume 'results/my run'"
    words = command(parse([GRIDWORLD, "--workers", "3", "--sync-dir", "s", "--bohb-id", "2"]), run_dir).split()
    assert words[-6:] == ["--workers", "3", "--sync-dir", "s", "--bohb-id", "2"]
    assert command(parse([GRIDWORLD, "--single", "--sync-dir", "s"]), run_dir).endswith("--sync-dir s --single")


# -------------------------------------------------------------------------------- real processes


class Master:
    """GTN_master.py as a process; ``lines`` of stdout and ``errors`` of stderr as they come."""

    def __init__(self, cwd, *args, single=True):
        command = [sys.executable, str(ROOT / "GTN_master.py"), *map(str, args)]
        command += ["--workers", "2"] if single and "--workers" not in command else []
        self.process = subprocess.Popen(
            command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default_sigint
        )
        self.lines, self.errors = [], []
        pairs = ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        self.threads = [threading.Thread(target=self._read, args=pair) for pair in pairs]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def wait_for(self, text, seconds=120.0):
        end = time.monotonic() + seconds
        while not any(text in line for line in [*self.lines, *self.errors]):
            assert time.monotonic() < end and self.process.poll() is None, (self.lines, self.errors)
            time.sleep(0.001)

    def end(self, sig=None):
        if sig is not None:
            self.process.send_signal(sig)
        code = self.process.wait(120)
        for thread in self.threads:
            thread.join()
        self.process.stdout.close()
        self.process.stderr.close()
        assert not any("Traceback" in line for line in self.errors), self.errors
        return code

    def workers(self):
        return [int(m[1]) for line in self.errors for m in [re.search(r"worker \d+ is there: pid (\d+)", line)] if m]


@contextlib.contextmanager
def started(*args, **kwargs):
    master = Master(*args, **kwargs)
    try:
        yield master
    finally:
        if master.process.poll() is None:
            master.process.kill()
            master.end()


def run(cwd, *args, **kwargs):
    with started(cwd, *args, **kwargs) as master:
        code = master.end()
        assert code == 0, master.errors
        return master


def run_dir(cwd):
    (folder,) = [p for p in (cwd / "results").iterdir() if p.name != "GTN_sync"]
    return folder


def gone(pid):
    """A process has ended; a zombie, which in a container nobody may collect, has too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The bytes of 30 generations on Cliff, made without any worker."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    with pytest.MonkeyPatch.context() as m:
        m.setattr(envolve.outer.run, "learning_curve", lambda *args, **kwargs: None)
        go(cliff("agents.gtn.max_iterations=30"), folder)
    return files(folder)


@pytest.fixture(scope="module")
def single_run(tmp_path_factory):
    cwd = tmp_path_factory.mktemp("single")
    return cwd, run(cwd, GRIDWORLD, "--set", *LONG)


def check_all_that_is_left(folder, masters):
    """masters: the processes that made the run, one after the other, told what they said and what they leave."""
    assert re.fullmatch(r"gridworld_reward_env_paper_\d{4}-\d\d-\d\d-\d{6}_seed0", folder.name)
    assert "workers are starting; the first run on a machine compiles their kernels" in masters[0].lines[1]
    lines = [line for master in masters for line in master.lines]
    assert sum(line.startswith("generation ") for line in lines) == 30, "one plain line per generation"
    assert not any("\x1b" in line for line in lines)
    text = "\n".join(masters[-1].lines)
    assert "training steps needed" in text and re.search(r"Written to (/.*/)?results/gridworld", text)
    names = {"config.yaml", "model.pt", "scores.csv", "checkpoint.pt", "learning_curve.png", "summary.txt"}
    assert names <= set(os.listdir(folder)) and list(folder.glob("events.out.tfevents.*"))
    assert (folder / "config.yaml").read_text().startswith("# Resolved configuration")
    assert os.listdir(folder / "sync") == [], "the exchange is left clean"
    for master in masters:
        assert master.workers() and all(gone(pid) for pid in master.workers())


@pytest.mark.slow
def test_single_run_from_beginning_to_end(single_run, reference):
    """Without an interruption; with one: ``test_ctrl_c_and_resume``."""
    cwd, master = single_run
    assert files(run_dir(cwd)) == reference
    check_all_that_is_left(run_dir(cwd), [master])


@pytest.mark.slow
def test_resume_of_a_finished_run(single_run, reference):
    """Local workers again, as the run was begun, though nobody said so; nothing is searched anew."""
    cwd, _ = single_run
    folder = run_dir(cwd)
    master = run(cwd, "--resume", folder, single=False)
    assert any("the search ended with generation 30" in line for line in master.lines)
    assert not any(line.startswith("generation ") for line in master.lines)
    assert any("training steps needed" in line for line in master.lines) and files(folder) == reference


@contextlib.contextmanager
def worker(cwd, worker_id, *args):
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "GTN_worker.py"), "0", str(worker_id), *map(str, args)],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_workers_started_by_hand(tmp_path, reference):
    """One before the master, one after it, in the default folder of the exchange; they outlive the run."""
    with worker(tmp_path, 0) as first:
        with started(tmp_path, GRIDWORLD, "--set", *LONG, single=False) as master:
            with worker(tmp_path, 5) as second:
                assert master.end() == 0
                assert first.poll() is None and second.poll() is None
    assert files(run_dir(tmp_path)) == reference


def test_a_master_without_workers_says_what_to_type(tmp_path, warm):
    with started(tmp_path, GRIDWORLD, "--sync-dir", "my sync", single=False) as master:
        master.wait_for(f"python3 GTN_worker.py 0 0 --sync-dir '{tmp_path / 'my sync'}' &")
        assert master.end(signal.SIGTERM) == 143
        assert any("continue with: python3 GTN_master.py --resume results/grid" in line for line in master.errors)


def interrupt_and_resume(cwd, config, overrides, moments, sig=signal.SIGINT, workers=2, masters=None):
    """Stop at each moment (a text in the output), resume in between; -> the folder of the finished run. masters: a list
    that gets all of them."""
    masters = [] if masters is None else masters
    args = [config, "--set", *overrides, "--workers", workers]
    for moment in moments:
        with started(cwd, *args) as master:
            masters.append(master)
            master.wait_for(moment)
            code = master.end(sig)
            if sig == signal.SIGINT:
                assert code in (130, 0), master.errors
                if code == 130:
                    assert "stopped; continue with: python3 GTN_master.py --resume" in master.errors[-1]
                assert all(gone(pid) for pid in master.workers())
            else:
                wait_until(lambda master=master: all(gone(pid) for pid in master.workers()))
        folder = run_dir(cwd)
        args = ["--resume", folder, "--workers", workers]
    masters.append(run(cwd, *args))
    return folder


def test_ctrl_c_and_resume(tmp_path, reference, warm):
    """In the middle: the bytes of a run without workers, and all that a whole run says and leaves."""
    masters = []
    folder = interrupt_and_resume(tmp_path, GRIDWORLD, LONG, ["generation 11/30"], workers=1, masters=masters)
    assert files(folder) == reference and len(masters) == 2
    check_all_that_is_left(folder, masters)


@pytest.mark.slow
def test_ctrl_c_at_the_beginning_and_again(tmp_path, reference):
    """While workers start, and in the middle."""
    moments = ["workers are starting", "generation 11/30"]
    assert files(interrupt_and_resume(tmp_path, GRIDWORLD, LONG, moments)) == reference


@pytest.mark.slow
def test_ctrl_c_in_the_closing_comparison(tmp_path, reference):
    assert files(interrupt_and_resume(tmp_path, GRIDWORLD, LONG, ["comparing agents"])) == reference


@pytest.mark.slow
def test_sigkill_and_resume(tmp_path, reference):
    """The workers end by themselves, and the master's heartbeat does not keep the next one out."""
    folder = interrupt_and_resume(tmp_path, GRIDWORLD, LONG, ["generation  9/30"], signal.SIGKILL)
    assert files(folder) == reference


@pytest.mark.slow
def test_full_disk_in_the_middle(tmp_path, reference):
    """A limit on the size of every file: scores.csv or TensorBoard's events do not fit any more."""
    import resource

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (53_000, 53_000))  # checkpoint.pt has 48 kB

    overrides = [*LONG, "agents.gtn.max_iterations=150"]  # 58 kB of scores.csv
    command = [sys.executable, str(ROOT / "GTN_master.py"), GRIDWORLD, "--workers", "1", "--set", *overrides]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limited, timeout=300)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert re.search(r"GTN_master.py: results/.*/(scores.csv|events.out.tfevents): File too large", lines[-2])
    assert "finished generations are kept; continue with: python3 GTN_master.py --resume results/" in lines[-1]
    folder = run_dir(tmp_path)
    finished = int(re.findall(r"^generation +(\d+)/150", done.stdout, re.MULTILINE)[-1])
    master = run(tmp_path, "--resume", folder)
    assert any(f"resumed at generation {finished + 1}" in line for line in master.lines)
    assert files(folder)[1].startswith(reference[1]) and files(folder)[1].count(b"\n") == 1 + 150 * 12


# -------------------------------------------------------------------------------- in a terminal


def screen(raw: str) -> list[str]:
    """What a terminal shows in the end: line feeds, carriage returns, cursor up, erase line. Colours are dropped."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\r\n]|[^\x1b\r\n]+", raw):
        if token == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif token == "\r":
            column = 0
        elif token.startswith("\x1b"):
            count = int(token[2:-1]) if token[2:-1].isdigit() else 1
            if token[-1] == "A":
                row = max(0, row - count)
            elif token[-1] == "K":
                lines[row] = ""
        else:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + token + line[column + len(token) :]
            column += len(token)
    return [line.rstrip() for line in lines]


@pytest.mark.slow
def test_live_table_in_a_terminal(tmp_path):
    """The table is drawn over itself, log lines stand above it and whole, and the summary follows."""
    primary, secondary = pty.openpty()
    env = {**os.environ, "COLUMNS": "110", "LINES": "50", "TERM": "xterm"}
    command = [sys.executable, str(ROOT / "GTN_master.py"), GRIDWORLD, "--workers", "2", "--set", *LONG]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=secondary, stdout=secondary, stderr=secondary, env=env)
    os.close(secondary)
    raw = b""
    try:
        while True:
            try:
                data = os.read(primary, 65536)
            except OSError:  # EIO: nobody has the other end any more
                break
            if not data:
                break
            raw += data
        assert process.wait(60) == 0
    finally:
        os.close(primary)
        if process.poll() is None:
            process.kill()
            process.wait()
    text = raw.decode()
    assert text.count("\x1b[2K") > 20 and "\x1b[?25h" in text, "drawn over itself; the cursor is shown again"
    lines = screen(text.replace("\r\n", "\n"))
    assert sum("generation 30/30" in line for line in lines) == 1 and not any("generation 29/30" in x for x in lines)
    for worker_id in (0, 1):
        assert sum(bool(re.fullmatch(rf"worker {worker_id} is there: pid \d+ on \S+", line)) for line in lines) == 1
    table = next(i for i, line in enumerate(lines) if "member-" in line)
    assert max(i for i, line in enumerate(lines) if "is there" in line) < table
    assert any("training steps needed" in line for line in lines[table:])


# -------------------------------------------------------------------------------- slow: every origin, random moments


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5])
def test_any_number_of_workers(tmp_path, reference, count):
    run(tmp_path, GRIDWORLD, "--set", *LONG, "--workers", count)
    assert files(run_dir(tmp_path)) == reference


@pytest.mark.slow
def test_cartpole_with_any_workers(tmp_path):
    """The compiled path: 1, 2 and 5 local workers, and two by hand."""
    overrides = [o for o in CARTPOLE if "backend" not in o] + ["agents.gtn.agent_name=DDQN_vary"]
    seen = []
    for count in (1, 2, 5):
        cwd = tmp_path / str(count)
        cwd.mkdir()
        run(cwd, CARTPOLE_SE, "--set", *overrides, "--workers", count)
        seen.append(files(run_dir(cwd)))
    cwd = tmp_path / "hand"
    cwd.mkdir()
    with worker(cwd, 3, "--sync-dir", "s"), started(
        cwd, CARTPOLE_SE, "--set", *overrides, "--sync-dir", "s", single=False
    ) as master, worker(cwd, 1, "--sync-dir", "s"):
        assert master.end() == 0
    seen.append(files(run_dir(cwd)))
    assert seen[0] == seen[1] == seen[2] == seen[3]


@pytest.mark.slow
def test_cartpole_ctrl_c_and_resume(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    run(whole, CARTPOLE_SE, "--set", *CARTPOLE)
    for sig in (signal.SIGINT, signal.SIGKILL):
        cwd = tmp_path / sig.name
        cwd.mkdir()
        folder = interrupt_and_resume(cwd, CARTPOLE_SE, CARTPOLE, ["generation 1/3", "generation 2/3"], sig)
        assert files(folder) == files(run_dir(whole))


@pytest.mark.slow
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL])
def test_stopped_at_random_moments(tmp_path, reference, sig):
    """By the clock, so that a moment may fall anywhere: in imports, in a write, in the end."""
    import random

    moments = random.Random(int(sig))
    for trial in range(4):
        cwd = tmp_path / str(trial)
        cwd.mkdir()
        args = [GRIDWORLD, "--set", *LONG]
        for _ in range(3):
            with started(cwd, *args) as master:
                if moments.random() < 0.7:
                    master.wait_for("is there")
                time.sleep(moments.uniform(0.0, 1.5))
                master.process.send_signal(sig)
                master.process.wait(60)
                for thread in master.threads:
                    thread.join()
            folders = list((cwd / "results").iterdir()) if (cwd / "results").exists() else []
            if folders and (folders[0] / "config.yaml").exists():
                args = ["--resume", folders[0]]
            else:
                shutil.rmtree(cwd / "results", ignore_errors=True)
        run(cwd, *args)
        assert files(run_dir(cwd)) == reference
