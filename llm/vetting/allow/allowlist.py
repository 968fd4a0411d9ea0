"""The allow-list for shapers of tasks in a physics engine: torch and math over tensors."""

from __future__ import annotations

from collections.abc import Sequence

from envolve.llm.vetting.allow import allowed_names as names
from envolve.llm.vetting.allow.allowed_syntax import ALLOWED, MODULE_NAMES, REFUSED
from envolve.llm.vetting.allow.engine import check
from envolve.llm.vetting.allow.ownership import inside_of_functions
from envolve.llm.vetting.allow.table import Limits, Table
from envolve.llm.vetting.text.parsing import parse

TORCH = Table(
    limits=Limits(nodes=6000, problems=20, work=2_000_000, turns=1000, number=1e9, text=200),
    syntax=frozenset(ALLOWED),
    refused=REFUSED,
    builtins=names.BUILTINS,
    given={"torch": "torch", "math": "math", "F": "torch.nn.functional"},
    types=names.TYPING | {"Tensor"},
    modules=MODULE_NAMES,
    importable=names.MODULES,
    there="torch, math and typing are there",
    methods=names.METHODS,
    in_place=names.IN_PLACE,
    changing=frozenset({"append", "extend", "insert", "update"}) | names.IN_PLACE,
    properties=names.PROPERTIES,
    hidden=frozenset(),
    keywords=names.KEYWORDS_REFUSED,
    instead=names.INSTEAD,
    instead_of_attributes=names.INSTEAD_OF_ATTRIBUTES,
    others="write it with other operations",
    assigned=lambda owner, name: "use variables",
    owner=inside_of_functions,
    sized=names.SIZED,
    function_names=frozenset({"Pose"}),
)


def check_source(code: str, types: Sequence[str]) -> None:
    """Raises VetError("allowlist", one line per problem) unless the code is allowed and defines one of ``types``."""
    check(parse(code, "allowlist"), types, TORCH)
