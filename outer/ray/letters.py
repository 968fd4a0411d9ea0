"""What a driver sends its workers: each configuration once, and of a chunk's worlds no more than a worker needs to draw
them again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from envolve.outer.exchange.messages import Chunk
from envolve.outer.exchange.pairs import pack
from envolve.outer.ray.codec import ground_bytes, thin_work, work
from envolve.outer.ray.evaluator import CONFIGS, GROUNDS
from envolve.outer.ray.staff import Cluster, Member
from envolve.outer.search.recipe import Ground


class Letters:
    """``draws``: whether workers draw worlds again as they were drawn here; else whole ones are sent."""

    def __init__(self, cluster: Cluster) -> None:
        self.draws = True
        self._cluster = cluster
        self._packed: dict[int, tuple[Any, str, bytes]] = {}  # by id of a configuration or of a ground

    def write(self, worker: int, member: Member, chunk: Chunk, share: int) -> bytes:
        """A chunk for this worker, which is taught what it needs before. share: bytes of whole worlds that each worker
        is likely to get."""
        key, config = self._pack(chunk.config, lambda: pack({"config": chunk.config}))
        self._teach(worker, member.knows, CONFIGS, key, config)
        if chunk.recipe is None or not self.draws:
            return work(chunk, key)
        ground: Ground = chunk.recipe.ground
        known, data = self._pack(ground, lambda: ground_bytes(ground))
        if known not in member.grounds and share <= len(data):
            return work(chunk, key)
        self._teach(worker, member.grounds, GROUNDS, known, data)
        return thin_work(chunk, key, known)

    def forget(self, config: dict[str, Any]) -> None:
        """Drops what is kept of a configuration that no other chunk has."""
        self._packed.pop(id(config), None)

    def clear(self) -> None:
        self._packed.clear()

    def _teach(self, worker: int, knows: OrderedDict[str, None], most: int, key: str, data: bytes) -> None:
        if key not in knows:
            self._cluster.learn(worker, key, data)
            knows[key] = None
            while len(knows) > most:
                knows.popitem(last=False)

    def _pack(self, what: Any, packed: Callable[[], bytes]) -> tuple[str, bytes]:
        """Key and bytes, made once."""
        found = self._packed.get(id(what))
        if found is None:
            data = packed()
            found = self._packed[id(what)] = (what, hashlib.sha256(data).hexdigest(), data)
        return found[1], found[2]
