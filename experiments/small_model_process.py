"""The server behind serve_small_model.py, run by the Python of its own virtual environment: MODEL PORT SLOTS THREADS.

It prints its URL when the model is loaded and ends when its standard input does, so that it never outlives its parent.
"""

from __future__ import annotations

import sys

import xllamacpp  # type: ignore[import-not-found]  # only there

CONTEXT = 8192  # tokens that SmolLM2 can read and write, for each slot


def main(model: str, port: int, slots: int, threads: int) -> None:
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = model, {"smollm2"}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = slots, slots * CONTEXT
    params.cpuparams.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
