"""Finished trials in the two files of hpbandster 0.7.4's json_result_logger, so that its tools read a study and this
project reads its folders (https://automl.github.io/HpBandSter).

configs.json has a line ``[config_id, values, {"model_based_pick": ...}]`` for every configuration, results.json a line
``[config_id, budget, {"submitted", "started", "finished"}, {"loss", "info"} or null, error or null]`` for every trial.
A line of results.json counts once its end of line is on the disk, and a configuration is there before its results.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from envolve.core.files import TABLE_BYTES, read_plain
from envolve.outer.config.yaml_lines import ConfigError, show
from envolve.outer.hpo.trial import ConfigID, Plain, Record, Trial, TrialResult

TIMES = ("submitted", "started", "finished")


class TrialLog:
    """Records of one folder. Only one process may append; readers may come at any time."""

    def __init__(self, folder: Path) -> None:
        self.configs, self.results = folder / "configs.json", folder / "results.json"
        self.known: dict[ConfigID, tuple[dict[str, Plain], bool]] | None = None  # None: not read yet
        self.count = 0

    def read(self, repair: bool = True) -> list[Record]:
        """Trials in the order of the file, which is that of their ids. repair: cut off an incomplete last line; without
        it nothing is written, as for readers of a running study. Raises ConfigError, OSError."""
        results = list(_lines(self.results, repair))  # first: a configuration is written before its results
        self.known = {}
        for where, line in _lines(self.configs, repair):
            config_id, values, model_based = _configuration(where, line)
            if self.known.setdefault(config_id, (values, model_based)) != (values, model_based):
                _wrong(where, f"configuration {list(config_id)} again, with other values", "each one once")
        records: list[Record] = []
        budgets: dict[ConfigID, list[float]] = {}
        for where, line in results:
            records.append(_record(where, line, len(records), self.known, budgets))
        self.count = len(records)
        return records

    def append(self, record: Record) -> None:
        """Appends a record, which is on disk on return. Raises ValueError for a trial out of order, ConfigError,
        OSError."""
        if self.known is None:
            self.read()
            assert self.known is not None
        trial, result = record.trial, record.result
        if trial.id != self.count:
            raise ValueError(f"{self.results}: found trial {trial.id}, expected {self.count}: they come in order")
        values = dict(trial.values), trial.model_based
        if self.known.get(trial.config_id, values) != values:
            found = f"other values than those of trial {trial.id}"
            raise ConfigError([f"{self.configs}: found configuration {list(trial.config_id)} with {found}"])
        if trial.config_id not in self.known:
            _append(self.configs, [trial.config_id, trial.values, {"model_based_pick": trial.model_based}])
            self.known[trial.config_id] = values
        failed = not math.isfinite(result.loss)
        # hpbandster takes the smallest loss for the best: NaN and -inf must not get there. It has null for a failure
        loss = math.inf if failed else result.loss
        outcome = {"loss": loss, "info": result.info} if result.info or not failed else None
        times = {name: getattr(record, name) for name in TIMES}
        _append(self.results, [trial.config_id, trial.budget, times, outcome, result.error or None])
        self.count += 1


def _append(path: Path, content: list[Any]) -> None:
    """Appends a line, which is on disk on return; an incomplete line before it is removed."""
    data = json.dumps(content).encode("ascii") + b"\n"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _cut_torn(file)
        os.lseek(file, 0, os.SEEK_END)
        with open(file, "wb", closefd=False) as stream:
            stream.write(data)
        os.fsync(file)
    finally:
        os.close(file)


def _cut_torn(file: int) -> None:
    whole = end = os.lseek(file, 0, os.SEEK_END)
    while end and os.pread(file, 1, end - 1) != b"\n":
        end -= 1
    if end != whole:
        os.ftruncate(file, end)
        os.fsync(file)


def _lines(path: Path, repair: bool) -> Iterator[tuple[str, Any]]:
    """Location (file:number) and content of each line; an incomplete last line does not count."""
    if not path.exists():
        return
    *whole, torn = read_plain(path, TABLE_BYTES).split(b"\n")
    if torn and repair:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _cut_torn(file)
        finally:
            os.close(file)
    for number, line in enumerate(whole, 1):
        where = f"{path}:{number}"
        try:
            yield where, json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as e:
            _wrong(where, f"a line that is not JSON ({e})", "a list")


def _configuration(where: str, line: Any) -> tuple[ConfigID, dict[str, Plain], bool]:
    if not isinstance(line, list) or len(line) not in (2, 3):  # 2: older files of hpbandster
        _wrong(where, show(line), "[config_id, values, config_info]")
    if not isinstance(line[1], dict):
        _wrong(f"{where} values", show(line[1]), "an object of names and values")
    values: dict[str, Plain] = {}
    for name, value in line[1].items():
        if value is None:  # older versions of ConfigSpace: the parameter is not active
            continue
        if not isinstance(value, (bool, int, float, str)) or (isinstance(value, float) and not math.isfinite(value)):
            _wrong(f"{where} {name}", show(value), "true or false, a finite number or a text")
        values[name] = value
    info = line[2] if len(line) == 3 else {}
    model_based = info.get("model_based_pick", False) if isinstance(info, dict) else False
    if not isinstance(model_based, bool):
        _wrong(f"{where} model_based_pick", show(model_based), "true or false")
    return _config_id(where, line[0]), values, model_based


def _record(
    where: str,
    line: Any,
    id: int,
    configs: dict[ConfigID, tuple[dict[str, Plain], bool]],
    budgets: dict[ConfigID, list[float]],
) -> Record:
    """budgets: of each configuration's earlier lines; this line's is added."""
    if not isinstance(line, list) or len(line) != 5:
        _wrong(where, show(line), "[config_id, budget, time stamps, result, exception]")
    config_id = _config_id(where, line[0])
    if config_id not in configs:
        _wrong(where, f"configuration {list(config_id)}", "one of configs.json")
    budget = _number(f"{where} budget", line[1])
    if not 0 < budget < math.inf:
        _wrong(f"{where} budget", show(line[1]), "more than 0, and finite")
    earlier = budgets.setdefault(config_id, [])
    if earlier and budget <= max(earlier):
        _wrong(f"{where} budget", f"{budget:g} after {max(earlier):g}", "a larger one each time it returns")
    rung = len(earlier)
    earlier.append(budget)
    stamps = line[2] if isinstance(line[2], dict) else {}
    times = [_number(f"{where} {name}", stamps.get(name)) for name in TIMES]
    values, model_based = configs[config_id]
    trial = Trial(id, config_id, dict(values), budget, rung, model_based)
    return Record(trial, _result(where, line[3], line[4]), *times)


def _result(where: str, result: Any, error: Any) -> TrialResult:
    if not isinstance(error, (str, type(None))):
        _wrong(f"{where} exception", show(error), "a text or null")
    if result is None:
        return TrialResult(math.inf, {}, error or "")
    if not isinstance(result, dict):
        _wrong(f"{where} result", show(result), '{"loss": ..., "info": ...} or null')
    loss = _number(f"{where} loss", result.get("loss"))
    info = result.get("info")
    measured: dict[str, float] = {}  # hpbandster lets users put anything there; what is no number stays in the file
    for name, value in (info if isinstance(info, dict) else {}).items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            measured[name] = _number(f"{where} info {name}", value)
    return TrialResult(loss if math.isfinite(loss) else math.inf, measured, error or "")


def _config_id(where: str, found: Any) -> ConfigID:
    fits = isinstance(found, list) and len(found) == 3
    if not fits or not all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in found):
        _wrong(f"{where} config_id", show(found), "three whole numbers, 0 or more")
    return found[0], found[1], found[2]


def _number(where: str, found: Any) -> float:
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        try:
            return float(found)
        except OverflowError:  # 1 with 400 zeros
            pass
    _wrong(where, show(found), "a number")


def _wrong(where: str, found: str, expected: str) -> NoReturn:
    raise ConfigError([f"{where}: found {found}, expected {expected}"])
