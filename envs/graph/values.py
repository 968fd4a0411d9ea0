"""Parts of a graph's JSON: names, numbers, lists, constants; and the error for invalid ones."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple, Union

import torch
from torch import Tensor

MOST_NODES, MOST_INPUTS, MOST_OUTPUTS, MOST_PARAMS = 2000, 256, 64, 1024
MOST_NUMBERS = 4096  # in a constant
MOST_CONSTANTS = 65536  # numbers in all constants together
MOST_ARGUMENTS = 256  # in a list
MOST_SIZES = 16  # in a list of integers
LARGEST_INTEGER = 2**40  # of sizes and the like; and INT64_MAX, which ends a slice
INT64_MAX = 2**63 - 1
DTYPES = {str(t)[6:]: t for t in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)}
SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
FORMATS = {"contiguous": torch.contiguous_format, "preserve": torch.preserve_format}
IGNORED = ("device", "layout", "pin_memory", "non_blocking", "requires_grad")  # null or false


class GraphError(ValueError):
    """Raised for an invalid graph, and for inputs that it cannot be run on."""


class Ref(NamedTuple):
    """Meaning of an argument: ("node", k), ("item", k, j), ("in", i), ("param", k) or ("batch", m), m n."""

    kind: str
    k: int
    item: int = -1


def check_keys(value: Any, needed: Tuple[str, ...], optional: Tuple[str, ...], where: str) -> None:
    """Raises GraphError unless value is an object with exactly these keys."""
    if not isinstance(value, dict):
        raise GraphError(f"{where}: found {shown(value)}, expected an object")
    for name in needed:
        if name not in value:
            raise GraphError(f"{where}: {name!r} is missing")
    for name in value:
        if name not in needed and name not in optional:
            raise GraphError(f"{where}: unknown key {shown(name)}")


def listed(graph: Dict[str, Any], key: str, most: int, where: str) -> Iterator[Tuple[int, Any]]:
    values = graph[key]
    if not isinstance(values, list) or len(values) > most:
        raise GraphError(f"{where}: {key} is {shown(values)}, expected a list of at most {most}")
    return enumerate(values)


def check_name(value: Any, where: str) -> str:
    """A name of up to 64 characters. Raises GraphError."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\x00-\x1f\x7f]{1,64}", value) or not value.isprintable():
        raise GraphError(f"{where}: found {shown(value)}, expected a name of 1 to 64 characters")
    return value


def number(value: Any, at: str, batch: bool = False) -> Union[int, float, bool, Ref]:
    """A number, {"float": "inf"}, or {"batch": m}. Raises GraphError."""
    if isinstance(value, bool):
        return value
    if is_object(value, "float") and isinstance(value["float"], str) and value["float"] in SPECIAL:
        return SPECIAL[value["float"]]
    if type(value) is float and math.isfinite(value):
        return value
    return integer(value, at, batch)


def integer(value: Any, at: str, batch: bool = False) -> Union[int, Ref]:
    """An integer, or {"batch": m}. Raises GraphError."""
    if type(value) is int and (abs(value) <= LARGEST_INTEGER or value == INT64_MAX):
        return value
    if batch and is_object(value, "batch"):
        m = value["batch"]
        if type(m) is int and 1 <= m <= MOST_NUMBERS:
            return Ref("batch", m)
    raise GraphError(f"{at}: found {shown(value)}, expected a number of moderate size")


def short_list(value: Any, at: str) -> List[Any]:
    if not isinstance(value, list) or len(value) > MOST_ARGUMENTS:
        raise GraphError(f"{at}: found {shown(value)}, expected a list of at most {MOST_ARGUMENTS}")
    return value


def read_dtype(value: Any, at: str) -> torch.dtype:
    """{"dtype": "float32"} or its text. Raises GraphError."""
    name = value["dtype"] if is_object(value, "dtype") else value
    if not isinstance(name, str) or name not in DTYPES:
        raise GraphError(f"{at}: found {shown(value)}, expected a dtype, one of {', '.join(DTYPES)}")
    return DTYPES[name]


def read_constant(value: Any, dtype: Any, where: str) -> Tensor:
    """Nested lists of numbers -> a tensor on the CPU. Raises GraphError."""
    kind = read_dtype(dtype, f"{where}: dtype")
    flat: List[Any] = []
    shape: List[int] = []
    level = [value]
    while any(isinstance(v, list) for v in level):  # breadth first: no recursion that depth could break
        lengths = {len(v) if isinstance(v, list) else -1 for v in level}
        if len(lengths) > 1 or len(shape) == 6:
            raise GraphError(f"{where}: a constant is not rectangular, or has more than 6 dimensions")
        shape.append(lengths.pop())
        level = [inner for v in level for inner in v]
        if len(level) > MOST_NUMBERS:
            raise GraphError(f"{where}: a constant has more than {MOST_NUMBERS} numbers")
    for v in level:
        read = number(v, where)
        if kind == torch.bool and not isinstance(read, bool) or kind != torch.bool and isinstance(read, bool):
            raise GraphError(f"{where}: found {shown(v)} in a constant of {dtype}")
        if not kind.is_floating_point and isinstance(read, float):
            raise GraphError(f"{where}: found {shown(v)} in a constant of {dtype}")
        if kind == torch.int32 and abs(read) >= 2**31:  # type: ignore[arg-type]
            raise GraphError(f"{where}: {shown(v)} does not fit {dtype}")
        flat.append(read)
    return torch.tensor(flat, dtype=kind).reshape(shape)


def is_object(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in keys


def is_param(value: Any) -> bool:
    return isinstance(value, Ref) and value.kind == "param"


def shown(value: Any) -> str:
    """Short text for any ``value``."""
    if type(value) is int and abs(value) > 2**64:
        return "a huge integer"
    try:
        return reprlib.repr(value)
    except Exception:  # a huge integer within a list has no repr
        return f"a {type(value).__name__}"
