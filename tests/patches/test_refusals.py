"""Every way in which a patch of others can be wrong: an own message, and nothing is served."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import BASE, PATCHES, RECIPE, VLLM, Place, diff

WORKER = "vllm/v1/worker/cpu_worker.py"
MARK = "logger = init_logger(__name__)\n"


def source() -> str:
    return (VLLM / WORKER).read_text(encoding="utf-8")


def first(text: str) -> str:
    """The change of one hunk."""
    return text.replace(MARK, MARK + "# patched\n", 1)


def second(text: str) -> str:
    """The change of another."""
    return text + "# patched at the end\n"


def assert_refused(place: Place, told: str) -> None:
    """The receipt is not made, its reason is told, and no rank was started."""
    run = place.receipt()
    said = run.stdout + run.stderr
    assert run.returncode != 0, said
    assert told in said
    assert "Traceback" not in said
    assert not (place.folder / PATCHES / "nodes/localhost.json").exists()
    assert not (place.folder / PATCHES / "overlay").exists()
    assert not list(place.folder.glob("results/*/conc*/attempts"))


def test_a_diff_that_fits_becomes_an_overlay_and_the_installed_file_stays(place: Place) -> None:
    before = source()
    place.add(diff(WORKER, before, second(first(before))))
    run = place.receipt()
    assert run.returncode == 0, run.stderr[-3000:]
    patched = place.folder / PATCHES / "overlay" / WORKER
    assert patched.read_text(encoding="utf-8") == second(first(before))
    assert source() == before
    receipt = json.loads((place.folder / PATCHES / "nodes/localhost.json").read_text(encoding="utf-8"))
    (file,) = receipt["files"]
    assert (file["path"], file["before"] != file["after"]) == (WORKER, True)


def test_a_changed_context_line_is_not_passed_over(place: Place) -> None:
    before = source().replace(MARK, MARK + "other = 1\n")
    place.add(diff(WORKER, before, first(before)))
    assert_refused(place, "the source differs from what the diff was written for")


def test_a_patch_that_the_image_has_is_an_error_that_says_so(place: Place) -> None:
    after = source()
    place.add(diff(WORKER, after.replace(MARK, "", 1), after))
    assert_refused(place, "the software has this patch already")


def test_a_patch_that_is_in_by_half_is_told_as_such(place: Place) -> None:
    half = source()
    place.add(diff(WORKER, half.replace(MARK, "", 1), second(half)))
    assert_refused(place, "the software has a part of this patch already")


def test_another_hash_than_the_pinned_one_is_refused(place: Place) -> None:
    place.add(diff(WORKER, source(), first(source())), sha256="0" * 64)
    assert_refused(place, "the file has other contents than the pinned ones")


def test_an_address_that_does_not_answer_is_told_and_a_kept_copy_is_used(place: Place) -> None:
    place.add(diff(WORKER, source(), first(source())))
    file = place.served / "of-others"
    hidden = file.rename(place.served / "hidden")
    assert_refused(place, "cannot be fetched, and no copy is kept")
    hidden.rename(file)
    assert place.receipt().returncode == 0
    file.unlink()
    (place.folder / PATCHES / "set.json").unlink()
    assert place.receipt().returncode == 0


def test_a_script_that_changes_what_it_does_not_declare_is_refused(place: Place) -> None:
    script = f"echo '# patched' >> {WORKER}; echo '# patched' >> vllm/__init__.py"
    place.add(script, kind="script", files=[WORKER])
    assert_refused(place, "changed files that it does not declare")


def test_a_broken_patch_stops_the_point_itself_before_any_rank(place: Place) -> None:
    place.add("no diff at all")
    run = place.run(f"results/{RECIPE}/conc1/replay.json")
    assert run.returncode != 0
    assert "this is no diff in git's format" in run.stdout + run.stderr
    assert not list(place.folder.glob("results/*/conc*/attempts"))


@pytest.mark.parametrize(
    ("lost", "image", "told"),
    [
        (True, "serve-cpu", "this node does not see the patched file that was built"),
        (False, "client", "this node's image has another"),
    ],
)
def test_a_node_without_the_patch_gets_no_receipt(
    place: Place, lost: bool, image: str, told: str
) -> None:
    """The second node has not the built folder, or has another image than the first."""
    place.add(diff(WORKER, source(), first(source())))
    assert place.receipt().returncode == 0
    if lost:
        (place.folder / PATCHES / "overlay" / WORKER).unlink()
    own = place.folder / "image.json"
    own.write_text(json.dumps({"image": f"envs/{image}", "digest": "sha256:0"}), encoding="utf-8")
    run = _check(place, own)
    assert run.returncode == 1
    assert told in run.stderr
    assert not (place.folder / "second.json").exists()


def _check(place: Place, image: Path) -> subprocess.CompletedProcess[str]:
    engine = json.dumps({"runtime": "process", "command": [], "images": None})
    words = ["--patch-set", f"{PATCHES}/set.json", "--overlay", f"{PATCHES}/overlay.json"]
    words += ["--image", str(image), "--engine", engine, "--node", "localhost"]
    return subprocess.run(
        [sys.executable, str(BASE / "scripts/check_patches.py"), *words, "--output", "second.json"],
        cwd=place.folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_two_diffs_of_one_file_are_applied_in_the_recipes_order(place: Place) -> None:
    twice = first(source()).replace("# patched", "# patched twice")
    place.add(diff(WORKER, source(), first(source())))
    place.add(diff(WORKER, first(source()), twice), "then")
    assert place.receipt().returncode == 0
    assert (place.folder / PATCHES / "overlay" / WORKER).read_text(encoding="utf-8") == twice
    place.switch_on(["then", "of-others"])
    run = place.receipt()
    assert run.returncode != 0
    assert "sources/then: the source differs from what the diff was written for" in run.stderr
