"""vLLM's Prometheus metrics as sums over label sets."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


def read_counters(path: Path) -> dict[str, float]:
    """{sample name: sum over its label sets} of one saved /metrics answer."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def labels_of(path: Path, name: str) -> dict[str, str] | None:
    """Labels of an info metric's first sample; None if it is absent."""
    for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
        for sample in family.samples:
            if sample.name == name:
                return dict(sample.labels)
    return None


def models_of(path: Path) -> set[str]:
    """Names of the models that a saved /metrics answer of vLLM speaks of."""
    return {
        sample.labels["model_name"]
        for family in text_string_to_metric_families(path.read_text(encoding="utf-8"))
        for sample in family.samples
        if sample.name.startswith("vllm:") and "model_name" in sample.labels
    }


def grown(before: dict[str, float], after: dict[str, float], name: str) -> float | None:
    """How much a counter grew between two answers; None if the server does not have it."""
    if name not in after:
        return None
    return after[name] - before.get(name, 0.0)
