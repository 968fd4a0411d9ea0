"""Thin chunks: a member costs bytes, its score keeps its bits, and who draws otherwise gets whole worlds."""

from __future__ import annotations

import torch

from envolve.outer.config.section import GTNSection
from envolve.outer.exchange.messages import Chunk
from envolve.outer.ray import codec
from envolve.outer.search.nes import NES
from tests.outer.ray.fake import FakeCluster, pool

D, CONFIG = 2247, {"x": 1}


def chunks_of(size, generations=1, n=16):
    """Chunks of the last generation."""
    nes = NES(GTNSection(num_workers=n, num_orig_evals=n), 5, lambda s: torch.linspace(-1, 1, D), torch.ones(D))
    for _ in range(generations):
        population = nes.ask()
        nes.tell(population.worlds.sum(1).double().numpy())
    recipe, members = population.recipe, torch.arange(len(population.seeds))
    parts = members.split(size)
    return [
        Chunk("run", generations, i, 0, "proxy", CONFIG, population.worlds[p], population.seeds[p], recipe.part(p))
        for i, p in enumerate(parts)
    ]


class Counting(FakeCluster):
    """Counts the bytes that go out."""

    out = 0

    def learn(self, worker, key, config):
        self.out += len(config)
        super().learn(worker, key, config)

    def send(self, worker, token, data):
        self.out += len(data)
        super().send(worker, token, data)


def evaluate(cluster, chunks):
    with pool(cluster) as p:
        return p, torch.cat([r.values["score"] for r in p.evaluate(chunks)])


def test_a_member_costs_bytes():
    thin, whole = Counting({"a": 2}), Counting({"a": 2})
    chunks = chunks_of(8, generations=3)
    members = sum(len(c.seeds) for c in chunks)
    _, scores = evaluate(thin, chunks)
    for chunk in chunks:
        chunk.recipe = None
    _, expected = evaluate(whole, chunks)
    assert torch.equal(scores, expected)
    print(f"{members} members: {whole.out / members:.0f} and {thin.out / members:.0f} bytes each")
    assert whole.out / members > 4 * D and thin.out / members < 1000


def test_where_little_is_to_do_whole_worlds_are_sent():
    """A worker would need the centre of the search for one member."""
    cluster = Counting({"a": 8})
    evaluate(cluster, chunks_of(1, n=1)[:2])
    assert not any(e._grounds for e in cluster.objects.values()) and cluster.out > 2 * 4 * D


def test_who_draws_other_numbers_gets_whole_worlds(monkeypatch, caplog):
    chunks = chunks_of(8)
    right = codec.perturbations
    monkeypatch.setattr(codec, "perturbations", lambda *a: right(*a) * 1.0000001)
    p, scores = evaluate(Counting({"a": 2}), chunks)
    assert not p._letters.draws and caplog.text.count("cannot draw worlds again") == 1
    monkeypatch.undo()
    assert torch.equal(scores, evaluate(Counting({"a": 2}), chunks)[1])


def test_a_worker_that_dies_and_its_successor():
    def script(cluster, worker, token, data):
        if len(cluster.sent) == 3:
            cluster.die_once_begun(worker)
            return True
        return False

    chunks = chunks_of(4)
    _, expected = evaluate(Counting({"a": 2}), chunks)
    _, scores = evaluate(Counting({"a": 2}, script=script), chunks)
    assert torch.equal(scores, expected)
