"""The report in a real browser: complete, quiet, and asking the network for nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from .made_report import evaluation, make_report

REQUIRED = os.environ.get("SERVE_REPRO_REQUIRE_BROWSER") == "1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    found = shutil.which("chromium")
    if found is None:
        if REQUIRED:
            pytest.fail("no chromium, and SERVE_REPRO_REQUIRE_BROWSER is set")
        pytest.skip("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two points of a made recipe: one value reproduced, one not, one missing."""
    return make_report(tmp_path_factory.mktemp("report"), (16, 20), 1, [])


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of six points of three runs each, and two evaluations, one below its threshold."""
    evaluated = [evaluation("big", 0.31), evaluation("small", 0.95)]
    return make_report(tmp_path_factory.mktemp("repeated"), (1, 4, 8, 16, 20, 32), 3, evaluated)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_reader_sees_the_verdict_first(browser: Browser, page: Path, scheme: Any, width: int) -> None:
    told: list[str] = []
    asked: list[str] = []
    opened = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    opened.on("console", lambda message: told.append(message.text))
    opened.on("pageerror", lambda error: told.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(page.as_uri())
    assert opened.title() == "serve-repro: what was reproduced"
    headline = opened.locator(".headline").inner_text()
    assert headline == "1 of 3 published values reproduced; 1 not reproduced, 1 missing"
    assert opened.locator("h1").bounding_box()["y"] < 100  # type: ignore[index]
    assert opened.locator("td.not-reproduced").inner_text() == "not reproduced"
    assert opened.locator("tbody").nth(1).locator("tr").count() == 2
    opened.locator("summary").first.click()
    assert opened.locator("li.pass").first.inner_text() == "window: 1800 s <of> 1800"
    pictures = "Array.from(document.images, image => image.complete ? image.naturalWidth : 0)"
    assert min(opened.evaluate(pictures)) > 100
    # Wide things scroll in their own box; the page itself never does.
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    background = opened.evaluate(
        "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
    )
    assert ("255, 255, 255" in background.partition(")rgb")[2]) == (scheme == "dark")
    assert told == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    opened.close()


def test_on_paper_every_point_is_open(browser: Browser, page: Path) -> None:
    opened = browser.new_page()
    opened.goto(page.as_uri())
    opened.emulate_media(media="print")
    assert opened.locator("ul.gates").first.bounding_box()["height"] > 0  # type: ignore[index]
    opened.close()


def test_the_same_numbers_give_the_same_pictures(page: Path, tmp_path: Path) -> None:
    again = make_report(tmp_path, (16, 20), 1, []).parent
    for picture in page.parent.rglob("*.svg"):
        assert (again / picture.relative_to(page.parent)).read_bytes() == picture.read_bytes()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_failed_evaluation_stands_in_the_first_lines(
    browser: Browser, repeated: Path, width: int
) -> None:
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(repeated.as_uri())
    headlines = opened.locator(".headline").all_inner_texts()
    assert headlines[1] == "1 of 2 accuracy evaluations passed; 1 failed"
    bottom = opened.locator("li", has_text="strict-match 0.31 is below 0.9").first.bounding_box()
    assert bottom is not None
    assert bottom["y"] < 500
    told = opened.locator("table.accuracy tbody tr")
    assert [text.split()[-1] for text in told.all_inner_texts()] == [
        *("passed", "failed", "passed", "passed"),
    ]
    assert opened.locator("summary", has_text="big, accuracy, gsm8k").count() == 1
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


def test_repeats_are_told_as_their_mean_with_its_spread_and_each_by_its_run(
    browser: Browser, repeated: Path
) -> None:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto(repeated.as_uri())
    means, runs = opened.locator("tbody").nth(1), opened.locator("details.runs")
    assert means.locator("tr").count() == 6
    fourth = means.locator("tr").nth(3)
    assert fourth.locator("[data-name=runs]").inner_text() == "3"
    assert "2,003" in fourth.locator("[data-name='total tok/s/GPU']").inner_text()
    assert "CV 1.8 %" in fourth.locator("[data-name='total tok/s/GPU']").inner_text()
    assert runs.locator("tbody tr").count() == 18
    reused = means.locator("[data-name='reused from']").all_inner_texts()
    assert sorted(reused) == [*[""] * 5, "1 of 3 runs"]
    judged = opened.locator("tbody").first.locator("tr").first
    assert judged.locator("[data-name=runs]").inner_text() == "3"
    titles = opened.locator("summary", has_text="concurrency 20").all_inner_texts()
    assert [title.partition(":")[0] for title in titles] == [
        f"big, concurrency 20, run {run}" for run in (1, 2, 3)
    ]
    # No table is cut off, on a desk or on paper.
    for media, width in (("screen", 1280), ("print", 1032)):
        opened.set_viewport_size({"width": width, "height": 900})
        opened.emulate_media(media=media)  # type: ignore[arg-type]
        over = "Array.from(document.querySelectorAll('.wide'), e => e.scrollWidth - e.clientWidth)"
        assert max(opened.evaluate(over)) <= 0, media
    opened.close()


def test_without_evaluations_or_repeats_nothing_is_said_of_them(page: Path) -> None:
    told = page.read_text(encoding="utf-8")
    assert "accurate" not in told
    assert "evaluation" not in told
    assert "CV:" not in told
    assert ", run 1" not in told
