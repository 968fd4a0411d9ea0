"""results.json and configs.json: hpbandster reads them, and so do we, after any crash and whatever is in them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo import trial_log
from envolve.outer.hpo.trial import Record, Trial, TrialResult
from envolve.outer.hpo.trial_log import TrialLog

A = {"agents.gtn.step_size": 0.5, "mirrored": True, "batch": 64, "agent": "DDQN \u00fc\u4e16\ud800"}
B = {"agents.gtn.step_size": 1e-5, "mirrored": False, "batch": 128, "agent": "PPO"}
C = {"agents.gtn.step_size": 0.1}


def record(id: int, number: int, values: dict, budget: float, rung: int, loss: float, **rest: object) -> Record:
    trial = Trial(id, (number // 2, 0, number), values, budget, rung, model_based=number == 1)
    return Record(trial, TrialResult(loss, **rest), 1e9 + id, 1e9 + id + 0.25, 1e9 + id + 1.5)  # type: ignore[arg-type]


RECORDS = [
    record(0, 0, A, 5.0, 0, 12.5, info={"generations": 12.0, "score": -3.25}),
    record(1, 1, B, 5.0, 0, 7.0, info={"generations": 7.0, "odd": math.inf}),
    record(2, 2, C, 5.0, 0, math.inf, error='Traceback:\n  "no" \u4e16\n'),
    record(3, 1, B, 15.0, 1, 6.5),
    record(4, 0, A, 15.0, 1, math.inf, error="diverged", info={"steps": 4.0}),
    record(5, 1, B, 45.0, 2, 8.0),
    record(6, 3, A, 45.0, 0, 6.75),
]


def write(folder: Path, records: list[Record] = RECORDS) -> TrialLog:
    log = TrialLog(folder)
    for r in records:
        log.append(r)
    return log


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert TrialLog(tmp_path).read() == []
    write(tmp_path)
    assert TrialLog(tmp_path).read() == RECORDS


def test_a_log_goes_on_in_another_process(tmp_path: Path) -> None:
    write(tmp_path, RECORDS[:3])
    write_rest = TrialLog(tmp_path)
    for r in RECORDS[3:]:
        write_rest.append(r)
    assert TrialLog(tmp_path).read() == RECORDS
    assert len((tmp_path / "configs.json").read_text().splitlines()) == 4


@pytest.mark.parametrize("loss", [math.nan, -math.inf, math.inf])
def test_a_loss_that_is_not_finite_is_a_failure_and_never_the_best(tmp_path: Path, loss: float) -> None:
    write(tmp_path, [record(0, 0, A, 5.0, 0, loss, info={"x": 1.0}), record(1, 1, B, 5.0, 0, loss)])
    assert [r.result.loss for r in TrialLog(tmp_path).read()] == [math.inf, math.inf]
    written = [json.loads(line)[3] for line in (tmp_path / "results.json").read_text().splitlines()]
    assert written == [{"loss": math.inf, "info": {"x": 1.0}}, None]  # hpbandster takes the smallest for the best


def test_the_bytes_are_those_of_hpbandster(tmp_path: Path) -> None:
    result = pytest.importorskip("hpbandster.core.result")
    (tmp_path / "ours").mkdir()
    write(tmp_path / "ours")
    logger = result.json_result_logger(str(tmp_path / "theirs"))
    for r in RECORDS:
        t = r.trial
        logger.new_config(t.config_id, t.values, {"model_based_pick": t.model_based})
        # its worker hands in a result or an exception, never both
        outcome = None if r.result.error and not r.result.info else {"loss": r.result.loss, "info": r.result.info}
        times = {"submitted": r.submitted, "started": r.started, "finished": r.finished}
        kwargs = {"config": t.values, "budget": t.budget}
        logger(
            SimpleNamespace(
                id=t.config_id, kwargs=kwargs, timestamps=times, result=outcome, exception=r.result.error or None
            )
        )
    for name in ("configs.json", "results.json"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


def test_hpbandster_reads_them(tmp_path: Path) -> None:
    reader = pytest.importorskip("hpbandster.core.result")
    write(tmp_path)
    result = reader.logged_results_to_HBS_result(str(tmp_path))
    assert result.get_incumbent_id() == (1, 0, 3)  # 6.75 at the largest budget; 6.5 was at a smaller one
    assert result.get_id2config_mapping()[0, 0, 1] == {"config": B, "config_info": {"model_based_pick": True}}
    runs = result.get_runs_by_id((0, 0, 1))
    assert [(r.budget, r.loss) for r in runs] == [(5.0, 7.0), (15.0, 6.5), (45.0, 8.0)]
    assert result.get_runs_by_id((1, 0, 2))[0].loss is None
    assert "no" in result.get_runs_by_id((1, 0, 2))[0].error_logs
    assert len(result.get_all_runs()) == len(RECORDS)


def test_a_folder_of_hpbandster_is_read(tmp_path: Path) -> None:
    """Older ones have no config_info, null for parameters that are not active, and anything as info."""
    times = '{"submitted": 1, "started": 2, "finished": 3}'
    (tmp_path / "configs.json").write_text('[[0, 0, 0], {"x": 1, "y": null}]\n[[0, 0, 1], {"x": 2}, "N/A"]\n')
    (tmp_path / "results.json").write_text(
        f'[[0, 0, 0], 1, {times}, {{"loss": 2, "info": {{"a": 1, "b": "text"}}}}, null]\n'
        f'[[0, 0, 1], 1, {times}, {{"loss": NaN, "info": "text"}}, null]\n'
    )
    first, second = TrialLog(tmp_path).read()
    assert first == Record(Trial(0, (0, 0, 0), {"x": 1}, 1.0), TrialResult(2.0, {"a": 1.0}), 1.0, 2.0, 3.0)
    assert second.result == TrialResult(math.inf)


@pytest.mark.parametrize("name", ["configs.json", "results.json"])
def test_a_torn_last_line_is_cut_off_and_the_study_goes_on(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    data = {n: (tmp_path / n).read_bytes() for n in ("configs.json", "results.json")}
    last = data[name].rstrip(b"\n").rfind(b"\n") + 1
    end = len(data[name])
    for cut in (last, last + 1, *range(last + 2, end - 2, 16), end - 2, end - 1):
        (tmp_path / "configs.json").write_bytes(data["configs.json"])
        # a configuration is on the disk before its results: where it is torn, they are not there
        (tmp_path / "results.json").write_bytes(b"".join(data["results.json"].splitlines(True)[:6]))
        (tmp_path / name).write_bytes(data[name][:cut])
        before = (tmp_path / name).read_bytes()
        assert TrialLog(tmp_path).read(repair=False) == RECORDS[:6]
        assert (tmp_path / name).read_bytes() == before
        log = TrialLog(tmp_path)
        assert log.read() == RECORDS[:6]
        assert (tmp_path / name).read_bytes() == data[name][:last]
        log.append(RECORDS[6])
        assert {n: (tmp_path / n).read_bytes() for n in data} == data


def test_a_torn_line_goes_before_the_next_one_is_written(tmp_path: Path) -> None:
    log = write(tmp_path, RECORDS[:2])
    with (tmp_path / "results.json").open("ab") as file:  # a full disk, say: the process lives on
        file.write(b"[[0, 0,")
    log.append(RECORDS[2])
    assert TrialLog(tmp_path).read() == RECORDS[:3]


def test_a_configuration_is_written_before_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whatever is on the disk after a crash can be read; results without a configuration could not."""
    log, real = write(tmp_path, RECORDS[:2]), trial_log._append

    def full(path: Path, content: list) -> None:
        if path.name == "results.json":
            raise OSError(28, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(trial_log, "_append", full)
    with pytest.raises(OSError, match="No space left"):
        log.append(RECORDS[2])
    assert len((tmp_path / "configs.json").read_text().splitlines()) == 3
    assert TrialLog(tmp_path).read() == RECORDS[:2]
    monkeypatch.setattr(trial_log, "_append", real)
    log.append(RECORDS[2])  # the same process, once there is room
    assert TrialLog(tmp_path).read() == RECORDS[:3]
    assert len((tmp_path / "configs.json").read_text().splitlines()) == 3


def test_order_and_values_are_kept(tmp_path: Path) -> None:
    log = write(tmp_path, RECORDS[:2])
    with pytest.raises(ValueError, match="found trial 3, expected 2"):
        log.append(RECORDS[3])
    with pytest.raises(ConfigError, match=r"configs.json: found configuration \[0, 0, 1\] with other values"):
        log.append(record(2, 1, A, 15.0, 1, 1.0))
    assert TrialLog(tmp_path).read() == RECORDS[:2]


GOOD = [[0, 0, 0], 1.0, {"submitted": 1, "started": 2, "finished": 3}, {"loss": 2, "info": {}}, None]


@pytest.mark.parametrize(
    "place, value, message",
    [
        ((), {}, r"found a mapping, expected \[config_id, budget, time stamps, result, exception\]"),
        ((), [1, 2], r"found \[1, 2\], expected \[config_id, budget"),
        ((0,), [0, 0], r"config_id: found \[0, 0\], expected three whole numbers"),
        ((0,), [0, 0, True], "config_id: found"),
        ((0,), [0, 0, 7], r"found configuration \[0, 0, 7\], expected one of configs.json"),
        ((1,), "5", "budget: found '5', expected a number"),
        ((1,), math.nan, "budget: found nan, expected more than 0"),
        ((1,), 10**400, "budget: found .*, expected a number"),
        ((2,), None, "submitted: found nothing, expected a number"),
        ((2, "started"), True, "started: found true, expected a number"),
        ((3,), [1], r"result: found \[1\], expected"),
        ((3,), {"info": {}}, "loss: found nothing, expected a number"),
        ((3, "loss"), "0.1", "loss: found '0.1', expected a number"),
        ((3, "info"), {"a": 10**400}, "info a: found"),
        ((4,), 7, "exception: found 7, expected a text or null"),
    ],
)
def test_damaged_results_are_refused(tmp_path: Path, place: tuple, value: object, message: str) -> None:
    line = json.loads(json.dumps(GOOD))
    at = line
    for key in place[:-1]:
        at = at[key]
    if place:
        at[place[-1]] = value
    else:
        line = value
    (tmp_path / "configs.json").write_text('[[0, 0, 0], {"x": 1}, {}]\n')
    (tmp_path / "results.json").write_text(json.dumps(line) + "\n")
    with pytest.raises(ConfigError, match="results.json:1[: ].*" + message):
        TrialLog(tmp_path).read()


@pytest.mark.parametrize(
    "line, message",
    [
        (b"{}", "found a mapping, expected"),
        (b"\xff\xfe", "a line that is not JSON"),
        (b"[" * 100_000, "a line that is not JSON"),
        (b"[[0, 0, 1], [], {}]", r"values: found \[\], expected an object"),
        (b'[[0, 0, 1], {"x": [1]}, {}]', r"x: found \[1\], expected true or false"),
        (b'[[0, 0, 1], {"x": NaN}, {}]', "x: found nan, expected"),
        (b'[[0, 0, 1], {}, {"model_based_pick": 1}]', "model_based_pick: found 1, expected true or false"),
        (b'[[0, 0, 0], {"x": 2}, {}]', "again, with other values"),
    ],
)
def test_damaged_configurations_are_refused(tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "configs.json").write_bytes(b'[[0, 0, 0], {"x": 1}, {}]\n' + line + b"\n[[0, 0, 9], {}, {}]\n")
    with pytest.raises(ConfigError, match="configs.json:2[: ].*" + message):
        TrialLog(tmp_path).read()


def test_a_configuration_returns_with_a_larger_budget_only(tmp_path: Path) -> None:
    (tmp_path / "configs.json").write_text('[[0, 0, 0], {"x": 1}, {}]\n')
    (tmp_path / "results.json").write_text((json.dumps(GOOD) + "\n") * 2)
    with pytest.raises(ConfigError, match="results.json:2 budget: found 1 after 1, expected a larger one"):
        TrialLog(tmp_path).read()


RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "hpbandster_run"  # by hpbandster 0.7.4's BOHB and Pyro


def test_a_run_of_hpbandster_itself_is_read_as_it_reads_it() -> None:
    """Its minimum is (x - 0.3)^2 + 1/budget; x above 0.95 raises."""
    records = TrialLog(RECORDED).read(repair=False)
    assert len(records) == 37 and len({r.trial.config_id for r in records}) == 27
    assert sum(r.trial.model_based for r in records if r.trial.rung == 0) == 11
    (failed,) = (r for r in records if not math.isfinite(r.result.loss))
    assert failed.result.error.endswith("RuntimeError: too large\n") and float(failed.trial.values["x"]) > 0.95
    for r in records:
        if r is not failed:
            assert r.result.loss == (float(r.trial.values["x"]) - 0.3) ** 2 + 1 / r.trial.budget
            assert r.result.info == {"b": r.trial.budget} and r.submitted <= r.started <= r.finished
    assert {(r.trial.budget, r.trial.rung) for r in records} > {(9.0, 0), (9.0, 1), (9.0, 2)}
    theirs = pytest.importorskip("hpbandster.core.result").logged_results_to_HBS_result(str(RECORDED))
    best = min((r for r in records if r.trial.budget == 9), key=lambda r: r.result.loss)
    assert theirs.get_incumbent_id() == best.trial.config_id
    key = {(r.trial.config_id, r.trial.budget): r.result.loss for r in records if r is not failed}
    assert {(r.config_id, r.budget): r.loss for r in theirs.get_all_runs() if r.loss is not None} == key
