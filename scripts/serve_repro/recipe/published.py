"""Published values: what somebody printed, under which conditions, and when we call it reproduced."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from serve_repro.recipe.base import Name, Strict


class Bands(Strict):
    """How far a value may be from the published one, in percent of it."""

    reproduced_percent: float | int
    """Up to here: reproduced."""
    close_percent: float | int
    """Up to here: close; beyond: not reproduced."""

    @model_validator(mode="after")
    def _ordered(self) -> Bands:
        if not 0 < self.reproduced_percent < self.close_percent:
            raise ValueError("reproduced_percent must be above 0 and below close_percent")
        return self


class Value(Strict):
    """One published number."""

    concurrency: Annotated[int, Field(ge=1)]
    """The point."""
    metric: str
    """Column of results/summary.csv."""
    value: float | int
    """The number, in the column's unit."""

    @model_validator(mode="after")
    def _can_be_a_divisor(self) -> Value:
        if self.value <= 0:
            raise ValueError(
                f"value must be above 0, found {self.value}: deviations are told in percent"
            )
        return self


class Published(Strict):
    """One publication's numbers for one recipe."""

    name: Name
    """Name of the publication: the file's name."""
    title: str
    """One line for people."""
    url: Annotated[str, Field(pattern=r"^https://")]
    """Where it was published."""
    commit: str | None
    """Commit of its source; null: it names none."""
    recipe: Name
    """The recipe that reproduces it."""
    note: str
    """What a reader of the comparison should know."""
    conditions: dict[str, str | int]
    """Columns of results/summary.csv that must have exactly these values; else nothing is compared."""
    bands: Bands
    """When a value counts as reproduced."""
    values: Annotated[list[Value], Field(min_length=1)]
    """The numbers."""
