"""What is not noted is requeued all the same; numbers are checked where they are given."""

from __future__ import annotations

import pytest

from envolve.slurm import ray_job, single_node, task
from envolve.slurm.arguments import build_parser
from envolve.slurm.commands import CONFIG
from envolve.slurm.fleet import Fleet


def test_a_task_whose_end_cannot_be_noted_is_requeued_at_its_time_limit(tmp_path, monkeypatch, capsys):
    """The disk is full, say. By hand, nobody else would send it again."""
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "exit").touch()  # where a folder belongs
    asked = []
    monkeypatch.setattr(task, "requeue", lambda environ, most: asked.append(task.job_of(environ)))
    monkeypatch.setattr(task, "tend", lambda *args, **more: (143, task.TIME_LIMIT))
    words = ["--role", "node", "--run-dir", str(tmp_path), "--", "sh", "-c", "sleep 30"]
    assert task.main(words, {"SLURM_JOB_ID": "77"}) == 143
    assert asked == ["77"] and "its exit code is not noted" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_is_above_zero(text, capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--run-dir", "x", "--poll", text])
    assert f"--poll: found {text!r}, expected a number of seconds above 0" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--masters", "--workers", "--max-starts"])
def test_a_number_of_processes_names_its_flag(flag, capsys):
    with pytest.raises(SystemExit):
        single_node.build_parser().parse_args(["--run-dir", "x", flag, "0"])
    assert f"{flag}: found '0', expected a whole number of at least 1" in capsys.readouterr().err


def test_a_clock_that_went_back_delays_nothing():
    """The next look may be another login node's, or the clock was set."""
    fleet = Fleet(1, 1, CONFIG, {}, "run")
    assert fleet.look(1e9, [], {}).send == {"master": [0], "worker": [0]}
    looks = [fleet.look(1e9 - 3600 + 15 * i, [], {}).send for i in range(4)]
    assert {"master": [0], "worker": [0]} in looks


def test_no_other_user_gets_into_the_folder_of_rays_head():
    """Ray gives its own to all users (0777); the one that was made for it stays around it."""
    assert ray_job.daemon("python", "127.0.0.1:6379", "127.0.0.1", "/tmp/own")[-1] == "--temp-dir=/tmp/own/r"
