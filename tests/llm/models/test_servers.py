"""Where Ollama is."""

from __future__ import annotations

import pytest

from envolve.llm.models.servers import ollama_url


@pytest.mark.parametrize(
    "host, url",
    [
        ("", "http://localhost:11434/v1"),
        ("gpu7", "http://gpu7:11434/v1"),
        ("0.0.0.0", "http://localhost:11434/v1"),
        ("0.0.0.0:8080", "http://localhost:8080/v1"),
        (":8080", "http://localhost:8080/v1"),
        ("[::1]:8080", "http://[::1]:8080/v1"),
        ("http://gpu7", "http://gpu7:80/v1"),
        ("https://gpu7/", "https://gpu7:443/v1"),
        ("https://gpu7:9/ollama/", "https://gpu7:9/ollama/v1"),
        (' "gpu7:1" ', "http://gpu7:1/v1"),
    ],
)
def test_ollama_url(host, url) -> None:
    assert ollama_url({"OLLAMA_HOST": host}) == url
