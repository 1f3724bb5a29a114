"""One exception for everything that a person can mend."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in the input or the surroundings, told so that its reader can mend it.

    Args:
        problem: one line, what is wrong.
        where: file and key, node or rank.
        expected: what should have been there.
        found: what is there.
        remedy: what to do, a command where there is one.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str | None = None,
        expected: object = None,
        found: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        lines = [f"{where}: {problem}" if where else problem]
        if expected is not None:
            lines.append(f"  expected: {expected}")
        if found is not None:
            lines.append(f"  found:    {found}")
        if remedy is not None:
            lines.append(f"  to do:    {remedy}")
        super().__init__("\n".join(lines))
