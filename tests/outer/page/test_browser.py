"""Pages of runs in a real browser: Debian's Chromium, driven by Playwright.

    apt-get install chromium; pip install playwright; python -m pytest tests/outer/page/test_browser.py

ENVOLVE_CHROMIUM names another browser, ENVOLVE_SHOTS a folder for screenshots to look at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envolve.experiments import study_report
from tests.experiments.command import exit_code
from tests.llm.attempts import evolution
from tests.llm.reporting.runs import hostile_run, large_run, write_run
from tests.outer.page.folders import ALL

pytestmark = pytest.mark.slow
playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
CHROMIUM = os.environ.get("ENVOLVE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 1.5  # until a page of a thousand candidates can be used
BYTES = 5_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page with all it said and asked for."""

    def __init__(self, browser: Any, width: int = 1280, dark: bool = False) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("request", lambda r: None if r.url.startswith("data:") else self.asked.append(r.url))

    def open(self, path: Path) -> Any:
        self.page.goto(path.resolve().as_uri(), wait_until="load")
        return self.page

    def all_drawn(self) -> None:
        """Scrolls to the end, so that every figure is drawn."""
        height = self.page.evaluate("document.documentElement.scrollHeight")
        for y in range(0, height, 500):
            self.page.evaluate(f"scrollTo(0, {y})")
            self.page.wait_for_timeout(60)
        self.until(
            "[...document.querySelectorAll('.chart .plot, .lineage > .plot')].every(p => p.querySelector('.main-svg'))"
        )

    def until(self, condition: str, seconds: float = 20.0) -> None:
        """Waits for a condition. (Playwright's own waiting evaluates texts in the page, which its policy forbids.)"""
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, condition
            self.page.wait_for_timeout(50)

    def shot(self, name: str) -> None:
        if folder := os.environ.get("ENVOLVE_SHOTS"):
            self.page.evaluate("scrollTo(0, 0)")
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)

    def quiet(self, *allowed: str) -> None:
        assert self.said == []
        assert [url for url in self.asked if not url.startswith(allowed)] == []


def page_of(*folders: Path, out: Path) -> Path:
    assert exit_code(study_report.main, [*folders, "--out", out]) == 0
    return out / "report.html"


@pytest.mark.parametrize("width,dark", [(1280, False), (380, True)])
def test_every_kind_is_drawn(browser: Any, tmp_path: Path, width: int, dark: bool) -> None:
    for name, make in ALL.items():
        path = page_of(make(tmp_path / name), out=tmp_path / f"page_{name}")
        tab = Tab(browser, width, dark)
        page = tab.open(path)
        tab.all_drawn()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the window"
        small = page.evaluate(
            "[...document.querySelectorAll('p, dd, td, li')].filter(e => e.offsetParent && "
            "parseFloat(getComputedStyle(e).fontSize) < 11).length"
        )
        assert small == 0
        assert page.evaluate("document.documentElement.dataset.look") == ("dark" if dark else "light")
        tab.shot(f"{name}_{width}")
        tab.quiet(path.resolve().as_uri())
        tab.context.close()


def test_a_thousand_candidates_can_be_used_at_once(browser: Any, tmp_path: Path) -> None:
    path = page_of(large_run(tmp_path / "run"), out=tmp_path / "page")
    assert path.stat().st_size < BYTES
    waits, worked = [], []
    for _ in range(3):
        tab = Tab(browser)
        meter = tab.context.new_cdp_session(tab.page)
        meter.send("Performance.enable", {"timeDomain": "threadTicks"})
        page = tab.open(path)
        metrics = {m["name"]: m["value"] for m in meter.send("Performance.getMetrics")["metrics"]}
        worked.append(metrics["TaskDuration"])
        waits.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
        page.evaluate("document.querySelector('.lineage').scrollIntoView()")
        page.wait_for_selector(".lineage > .plot .main-svg")
        page.click("tbody tr:nth-child(7) button")
        name = page.inner_text("tr[aria-current] button")
        tab.until(f"document.querySelector('.detail h3').textContent.startsWith('{name}')")
        assert page.locator(".detail .plot .main-svg").count() >= 1
        tab.quiet(path.resolve().as_uri())
        tab.context.close()
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    print(f"interactive after {', '.join(f'{w:.2f}' for w in waits)} s at a load of {load:.1f} per core, "
          f"{', '.join(f'{w:.2f}' for w in worked)} s of CPU; {path.stat().st_size / 1e6:.2f} MB")  # fmt: skip
    assert min(worked) <= SECONDS / 2  # of the page's main thread; other programs of this machine do not count
    if load < 3:
        assert min(waits) <= SECONDS


def test_the_lineage_by_pointer_and_by_keyboard(browser: Any, tmp_path: Path) -> None:
    everyone = evolution(4, 5)
    tab = Tab(browser)
    page = tab.open(page_of(write_run(tmp_path / "run", everyone), out=tmp_path / "page"))
    tab.all_drawn()
    child = next(i for i in everyone if i.parents and i.ok)
    child_name, parent = f"i{child.id:03d}", f"i{child.parents[0]:03d}"
    page.click(f"tbody button:text-is('{child_name}')")
    page.click(f".detail button:text('Changes from {parent}')")
    assert page.locator(".detail .source span").count() > 0
    page.click(f".detail dl button:text-is('{parent}')")
    assert page.inner_text(".detail h3").startswith(parent)
    page.focus("tbody tr:first-child button")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("tr[aria-current] button") == page.inner_text("tbody tr:nth-child(2) button")
    lost = next(i for i in everyone if i.rejection is not None)
    page.select_option("select[name=state]", "rejected")
    assert page.locator("tbody tr[data-id]").count() == sum(i.rejection is not None for i in everyone)
    page.click(f"tbody button:text-is('i{lost.id:03d}')")
    assert "line 3: no | while" in page.inner_text(".detail .why")
    page.fill("input[name=text]", "nothing of that name")
    assert page.locator("tbody tr[data-id]").count() == 0
    page.fill("input[name=text]", "")
    page.check("input[value=tree]")
    page.click("#look")
    assert page.evaluate("document.documentElement.dataset.look") == "dark"
    tab.shot("lineage_tree")
    page.select_option("select[name=state]", "")
    page.click(f"tbody button:text-is('{child_name}')")
    reached = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(400):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.tagName + '.' + (document.activeElement.name || "
                "document.activeElement.className || document.activeElement.id)"
            )
        )
    for wanted in ("BUTTON.look", "SELECT.state", "INPUT.text", "INPUT.view", "A.", "PRE.source"):
        assert any(r.startswith(wanted) for r in reached), f"{wanted} is not reached: {sorted(reached)}"
    tab.quiet("file:")


def test_a_candidate_chosen_shows_its_film(browser: Any, tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="imageio is not installed")
    everyone = evolution(2, 4)
    run = write_run(tmp_path / "run", everyone)
    (run / "films").mkdir()
    filmed, other = everyone[:2]
    pictures = [np.full((48, 64, 3), 60 * k, np.uint8) for k in range(4)]
    imageio.mimsave(run / "films" / f"i{filmed.id:03d}.gif", pictures, duration=100, loop=0)
    tab = Tab(browser)
    page = tab.open(page_of(run, out=tmp_path / "page"))
    tab.all_drawn()
    page.click(f"tbody button:text-is('i{filmed.id:03d}')")
    tab.until("[...document.querySelectorAll('.detail img')].some(i => i.naturalWidth === 64)")
    assert page.inner_text(".detail figcaption").startswith(f"i{filmed.id:03d}: a fresh agent")
    tab.shot("lineage_film")
    page.click(f"tbody button:text-is('i{other.id:03d}')")
    tab.until("document.querySelector('.detail img') === null")
    tab.quiet("file:")


def test_a_hostile_model_does_nothing(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser, 380)
    page = tab.open(page_of(hostile_run(tmp_path / "run"), out=tmp_path / "page"))
    tab.all_drawn()
    for button in page.locator("tbody button").all():
        button.click()
        page.wait_for_timeout(30)
    for details in page.locator("details > summary").all():
        details.click()
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main svg[onload]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 1\">')")
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None  # even where a text became HTML, the policy holds
    assert all("Content Security Policy" in text for text in tab.said) and tab.said
    tab.context.close()


def test_a_range_of_the_parallel_coordinates(browser: Any, tmp_path: Path) -> None:
    tab = Tab(browser)
    page = tab.open(page_of(ALL["study"](tmp_path / "study"), out=tmp_path / "page"))
    box = page.locator(".parallel .grip").last.bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + 10, box["y"] + box["height"] - 2)
    page.mouse.up()
    text = page.inner_text(".parallel output")
    assert "within the ranges" in text and page.locator(".parallel path.out").count() > 0
    page.click(".parallel button[type=reset]")
    page.focus(".parallel .grip >> nth=0")
    page.keyboard.press("ArrowUp")
    assert "within the ranges" in page.inner_text(".parallel output")
    tab.quiet("file:")


def test_a_live_page_follows_a_run_to_its_end(browser: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", evolution(2, 4))
    command = [sys.executable, "-m", "envolve", "report", str(run), "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().removeprefix("Live page: ").strip()
            tab = Tab(browser)
            tab.page.goto(address, wait_until="load")
            tab.all_drawn()
            tab.page.wait_for_selector("#live.on")
            tab.page.click("tbody tr:nth-child(3) button")
            chosen = tab.page.inner_text("tr[aria-current] button")
            write_run(run, evolution(4, 4))
            tab.until("document.querySelector('.lineage output').textContent.startsWith('17 of 17')")
            assert tab.page.inner_text("tr[aria-current] button") == chosen  # what was chosen stays so
            with (run / "individuals.jsonl").open("ab") as file:
                file.write(b'{"id": 99, "it')  # killed while it wrote
            (run / "result.json").write_text("{}")
            tab.until("document.querySelector('#live').textContent.includes('complete')")
            assert tab.page.locator(".state").count() == 0
            tab.quiet(address.split("?")[0])
            server.terminate()
            assert server.wait(10) == 143
            tab.page.wait_for_selector("#live.off", timeout=15_000)
            assert tab.page.locator("tbody tr[data-id]").count() == 17  # the last state remains
        finally:
            server.kill()
