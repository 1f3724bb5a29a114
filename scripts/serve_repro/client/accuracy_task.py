"""lm-eval's task over local files: its own prompts, metrics and filters, with our data and lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_repro.documents import write_json
from serve_repro.errors import UserError
from serve_repro.plan.model import AccuracyPlan

_TASK = Path("lm_eval/tasks/gsm8k/gsm8k.yaml")


def write(plan: AccuracyPlan, dataset: dict[str, Any], values: dict[str, str]) -> None:
    """Write the task for one attempt; JSON is YAML.

    Args:
        plan: what is asked.
        dataset: the items' manifest.
        values: what the plan's names stand for.

    Raises:
        UserError: the client's environment does not have the task.
    """
    environment = Path(values["EVAL_PYTHON"]).parents[1]
    found = sorted(environment.glob(f"lib/python*/site-packages/{_TASK}"))
    if not found:
        raise UserError("lm-eval has no such task", where=str(environment), expected=str(_TASK))
    kind, files = data_files(dataset)
    task = {
        "include": str(found[0]),
        "task": f"served_{plan.task}",
        "dataset_path": kind,
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files},
        # A server ends a turn by itself; lm-eval's word "Question:" would also cut a thought short.
        "generation_kwargs": {
            "until": [],
            "do_sample": False,
            "temperature": 0.0,
            "top_p": 1.0,
            "max_gen_toks": plan.max_tokens,
        },
    }
    write_json(Path(values["TASK_DIR"]) / f"served_{plan.task}.yaml", task)


def data_files(dataset: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """(loader, {split: files}) of made items, or of a fetched repository's configuration `main`."""
    folder = Path(dataset["folder"]).absolute()
    if "repository" not in dataset:
        return "json", {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
    name = dataset["repository"].replace("/", "--")
    main = folder / f"datasets--{name}" / "snapshots" / dataset["revision"] / "main"
    return "parquet", {split: str(main / f"{split}-*.parquet") for split in ("train", "test")}
