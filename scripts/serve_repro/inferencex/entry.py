"""Take the keys of an InferenceX entry one by one, and know which nobody took."""

from __future__ import annotations

from typing import Any

from serve_repro.errors import UserError

_ABSENT = object()


class Taker:
    """A mapping whose keys are taken; what is left over is told, so that nothing is lost unseen.

    Args:
        value: the mapping, as read from YAML.
        where: its place in the entry, for errors and reports.
    """

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise UserError("is not a mapping of keys", where=where, found=repr(value))
        self._left: dict[str, Any] = dict(value)
        self._parts: list[Taker] = []
        self.where = where

    def take(self, key: str, default: Any = _ABSENT) -> Any:
        """A key's value; it counts as read.

        Raises:
            UserError: it is missing, and there is no default.
        """
        value = self._left.pop(key, default)
        if value is _ABSENT:
            raise UserError("this key is missing", where=self.at(key))
        return value

    def need(self, key: str, wanted: Any, why: str, default: Any = _ABSENT) -> None:
        """Take a key that may have one value only.

        Raises:
            UserError: it has another: what the entry describes can be no recipe here.
        """
        value = self.take(key, default)
        if value != wanted:
            raise UserError(
                "cannot be a recipe",
                where=self.at(key),
                expected=f"{wanted!r}: {why}",
                found=repr(value),
            )

    def part(self, key: str) -> Taker:
        """A mapping inside this one."""
        inner = Taker(self.take(key), self.at(key))
        self._parts.append(inner)
        return inner

    def only(self, key: str) -> Taker:
        """The one mapping of a list; of several, a person chooses.

        Raises:
            UserError: the list holds none or more than one.
        """
        value = self.take(key)
        if not isinstance(value, list) or len(value) != 1:
            raise UserError(
                "one recipe is made of one element",
                where=self.at(key),
                found=f"{len(value)} elements" if isinstance(value, list) else repr(value),
                remedy="leave the wanted one in a copy of the entry, and import that",
            )
        inner = Taker(value[0], f"{self.at(key)}[0]")
        self._parts.append(inner)
        return inner

    def rest(self) -> dict[str, Any]:
        """Take all keys that are still there."""
        taken, self._left = self._left, {}
        return taken

    def at(self, key: str) -> str:
        """The place of a key, in words."""
        return f"{self.where}.{key}" if self.where else key

    def left(self) -> list[tuple[str, Any]]:
        """(place, value) of all that was not taken, here and in the parts."""
        own = [(self.at(key), value) for key, value in self._left.items()]
        return own + [found for part in self._parts for found in part.left()]
