"""A recipe's section `eval`: how accurate the model answers, on a server of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from serve_repro.recipe.base import Name, Strict


class MadeItems(Strict):
    """Sums in words with their answers, made from a seed: they show the path, not a skill."""

    items: Annotated[int, Field(ge=1)]
    """Questions; as many more are made for the examples."""
    seed: int
    """Seed of every draw."""


class HubItems(Strict):
    """A published set of questions."""

    repository: str
    """Hub data set id."""
    revision: str | None
    """Commit; null: what is fetched is recorded."""


class Items(Strict):
    """The questions, with those that examples are drawn from."""

    name: Name
    """Name of the set, and of its folder."""
    made: MadeItems | None = None
    """Made on the spot."""
    hub: HubItems | None = None
    """Published."""

    @model_validator(mode="after")
    def _one_source(self) -> Items:
        if (self.hub is None) == (self.made is None):
            raise ValueError("give exactly one of hub and made")
        return self


class Evaluation(Strict):
    """An accuracy evaluation. Its server never accepts drafts at a set rate."""

    task: Literal["gsm8k"]
    """lm-eval's task: prompts, metrics and filters are its own."""
    dataset: Items
    """The questions."""
    items: Annotated[int, Field(ge=1)]
    """Questions that are asked, from the first."""
    few_shot: Annotated[int, Field(ge=0)]
    """Examples before each question."""
    max_tokens: Annotated[int, Field(ge=1)]
    """Longest answer, in tokens."""
    concurrency: Annotated[int, Field(ge=1)]
    """Questions under way at once."""
    threshold: Annotated[float, Field(ge=0, le=1)]
    """What every exact_match must reach; 0: any score will do."""
    limit_s: Annotated[float, Field(gt=0)]
    """Longest that all questions may take, in seconds."""
