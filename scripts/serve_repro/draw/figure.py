"""How every picture is made and saved: with fixed ids and no date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, told apart with any colour vision and in grey print."""


@contextmanager
def drawn(target: Path, width_in: float, height_in: float) -> Iterator[Figure]:
    """A figure to draw on, saved at the end; the target's ending decides its format.

    Args:
        target: .svg or .png file.
        width_in: width in inches.
        height_in: height in inches.
    """
    mpl.use("Agg")
    with mpl.rc_context():
        mpl.rcParams["svg.hashsalt"] = "serve-repro"
        mpl.rcParams["axes.spines.top"] = False
        mpl.rcParams["axes.spines.right"] = False
        mpl.rcParams["axes.grid"] = True
        mpl.rcParams["grid.alpha"] = 0.3
        figure = plt.figure(figsize=(width_in, height_in), layout="constrained")
        try:
            yield figure
            target.parent.mkdir(parents=True, exist_ok=True)
            no_names = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(target, metadata=no_names if target.suffix == ".svg" else None, dpi=150)
        finally:
            plt.close(figure)
