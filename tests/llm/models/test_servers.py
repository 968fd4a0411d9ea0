"""Where models are, and keys that can be sent."""

from __future__ import annotations

import pytest

from envolve.llm.models.chat import make_chat
from envolve.llm.models.request import ChatError
from envolve.llm.models.servers import find_key, ollama_url


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


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://h:99999/v1", "http://h:-1/v1", "http://a b/v1", "http://\x00/v1", "http:///v1", "ftp://h/v1",
     "http://" + "a" * 64 + "/v1", "http://\udc80/v1"],
)  # fmt: skip
def test_no_url(url) -> None:
    with pytest.raises(ChatError, match="base URL .* expected http"):
        make_chat(["m"], url, environ={})
    with pytest.raises(ChatError, match="OLLAMA_HOST: found .* expected a host"):
        make_chat(["ollama:m"], environ={"OLLAMA_HOST": "http://[::1/"})


@pytest.mark.parametrize("key", ["sk-12345\nsk-67890", "sk-\u00fc12345", "sk-\x0012345"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key) -> None:
    """The client's error would quote it."""
    with pytest.raises(ChatError, match="environment variable LLM_API_KEY: found line breaks") as error:
        find_key("m", "http://localhost/v1", {"LLM_API_KEY": key})
    assert "sk-" not in str(error.value) and "12345" not in str(error.value)
    assert find_key("m", "http://localhost/v1", {"LLM_API_KEY": " sk-12345\n"}) == "sk-12345"
