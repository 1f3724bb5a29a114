"""The report in a real browser: complete, quiet, and asking the network for nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, sync_playwright

from serve_repro.client.series import Series
from serve_repro.draw import concurrency, course, interactivity
from serve_repro.recipe.load import parse
from serve_repro.recipe.published import Published
from serve_repro.table.report import SHOWN, render
from serve_repro.table.verdict import verdicts

REQUIRED = os.environ.get("SERVE_REPRO_REQUIRE_BROWSER") == "1"
PUBLISHED: dict[str, Any] = {
    "name": "theirs",
    "title": "What they printed",
    "url": "https://example.org/1",
    "commit": None,
    "recipe": "big",
    "note": "A note.",
    "conditions": {"gpus": 16},
    "bands": {"reproduced_percent": 5, "close_percent": 10},
    "values": [
        {"concurrency": 16, "metric": "total_tput_tok_s_gpu", "value": 2000},
        {"concurrency": 20, "metric": "ttft_p50_ms", "value": 1000},
        {"concurrency": 24, "metric": "ttft_p50_ms", "value": 1000},
    ],
}


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
    folder = tmp_path_factory.mktemp("report")
    columns = {column for panel in concurrency.PANELS for column in panel.columns.values()}
    rows = [
        dict.fromkeys([*SHOWN, *columns], 1.0)
        | {"recipe": "big", "site": "there", "validity": "submission", "status": "valid"}
        | {"gpus": 16, "accelerator": "mi355x", "concurrency": conc, "requests": 100}
        | {"total_tput_tok_s_gpu": 2010.0, "interactivity_p50_tok_s_user": 40.0, "ttft_p50_ms": 1500.0}
        for conc in (16, 20)
    ]
    table, published = pd.DataFrame(rows), [parse(PUBLISHED, Published, "here")]
    plots = [folder / "interactivity.svg", folder / "concurrency.svg"]
    interactivity.draw(table, published, plots[0])
    concurrency.draw(table, published, plots[1])
    points = {}
    for conc in (16, 20):
        replay, picture = folder / f"{conc}.json", folder / f"{conc}.svg"
        gates = [{"gate": "window", "outcome": "pass", "seen": "1800 s <of> 1800"}]
        point = {"recipe": "big", "concurrency": conc, "gates": gates, "identity": {"plan": "sha256:ab"}}
        replay.write_text(json.dumps(point), encoding="utf-8")
        course.draw("big", {"vllm:num_requests_running": Series([0.5, 1.5], [1.0, 2.0])}, picture)
        points[replay] = picture
    html = folder / "report.html"
    html.write_text(
        render(table, verdicts(table, published), published, plots, points), encoding="utf-8"
    )
    return html


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
    again = tmp_path / "20.svg"
    course.draw("big", {"vllm:num_requests_running": Series([0.5, 1.5], [1.0, 2.0])}, again)
    assert again.read_bytes() == (page.parent / "20.svg").read_bytes()
