"""From what a spider yields to what a database takes: items as JSON."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

from parsel import Selector, SelectorList

from flask_spiderpool.crawl.extract_child import storable

MAX_NESTING = 50
MAX_ITEM_CHARS = 4 * 1024 * 1024  #: of all texts of one item together


class BadItem(TypeError):
    """A value cannot be stored as JSON; the message says where it stands and what to do."""


def as_record(value: Any) -> Mapping[Any, Any] | None:
    """Return an item as a mapping: a dict, a dataclass, a pydantic or attrs object; ``None`` for anything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        # Not asdict(): it copies the values deeply, and fails on those that cannot be copied.
        return {spec.name: getattr(value, spec.name) for spec in dataclasses.fields(value)}
    names = getattr(type(value), "__attrs_attrs__", None)
    if names is not None:
        return {spec.name: getattr(value, spec.name) for spec in names}
    for method in ("model_dump", "dict", "_asdict"):
        dump = getattr(value, method, None)
        if callable(dump):
            record = dump()
            return record if isinstance(record, Mapping) else None
    return None


def json_item(value: Any) -> dict[str, Any] | None:
    """Return an item JSON-safe, or ``None`` if it is no item at all.

    Dates become ISO 8601, ``Decimal`` and UUID their text, bytes UTF-8 text, sets lists, NaN and infinities null.
    Raises :class:`BadItem` for what has no such form.
    """
    record = as_record(value)
    if record is None:
        return None
    converter = _Converter()
    return converter.mapping(record, "item", 0)


def json_value(value: Any, where: str) -> Any:
    """Return any value JSON-safe, by the rules of :func:`json_item`; ``where`` names it in errors."""
    return _Converter().value(value, where, 0)


class _Converter:
    """One item's conversion; counts its characters."""

    def __init__(self) -> None:
        self._chars = 0

    def value(self, value: Any, where: str, level: int) -> Any:
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is str:
            return self.text(value, where)
        if kind is int:
            return value
        if level > MAX_NESTING:
            raise BadItem(f"{where} is nested more than {MAX_NESTING} levels deep, or holds itself")
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        return self._other(value, where, level)

    def _other(self, value: Any, where: str, level: int) -> Any:
        if isinstance(value, Selector | SelectorList):
            raise BadItem(f"{where} is a {type(value).__name__}; add .get() or .getall() to have its text")
        if isinstance(value, enum.Enum):
            return self.value(value.value, where, level + 1)
        if isinstance(value, bytes | bytearray | memoryview):
            return self.text(_decoded(bytes(value), where), where)
        if isinstance(value, str):
            return self.text(str.__str__(value), where)
        for known, convert in _SCALARS.items():
            if isinstance(value, known):
                return convert(value)
        record = as_record(value) if not _is_named_tuple(value) else None
        if record is not None:
            return self.mapping(record, where, level + 1)
        if isinstance(value, Iterable) and not isinstance(value, type):
            return [
                self.value(entry, f"{where}[{index}]", level + 1)
                for index, entry in enumerate(_bounded(value))
            ]
        raise BadItem(
            f"{where} is a {type(value).__name__}, which has no form in JSON; convert it to text or numbers"
        )

    def text(self, value: str, where: str) -> str:
        self._chars += len(value)
        if self._chars > MAX_ITEM_CHARS:
            raise BadItem(f"the item's texts are longer than {MAX_ITEM_CHARS} characters, reached at {where}")
        return storable(value)

    def mapping(self, record: Mapping[Any, Any], where: str, level: int) -> dict[str, Any]:
        return {
            (name := self.key(key, where)): self.value(entry, f"{where}[{name!r}]", level + 1)
            for key, entry in record.items()
        }

    def key(self, key: Any, where: str) -> str:
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, str):
            return self.text(key, where)
        if isinstance(key, int | float | uuid.UUID | datetime.date) and not isinstance(key, bool):
            return str(key)
        raise BadItem(f"{where} has the key {key!r:.60}; keys must be text")


_MAX_ENTRIES = 100_000


def _bounded(values: Iterable[Any]) -> Iterable[Any]:
    for index, value in enumerate(values):
        if index >= _MAX_ENTRIES:
            raise BadItem(f"a list has more than {_MAX_ENTRIES} entries")
        yield value


def _is_named_tuple(value: Any) -> bool:
    # As the json module does: a tuple inside an item is a list, whatever its fields are called.
    return isinstance(value, tuple)


def _decoded(value: bytes, where: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise BadItem(f"{where} is bytes that are not UTF-8; encode them first, as with base64") from None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


_SCALARS: dict[type, Callable[[Any], Any]] = {
    float: _finite,
    int: int,
    datetime.datetime: datetime.datetime.isoformat,
    datetime.date: datetime.date.isoformat,
    datetime.time: datetime.time.isoformat,
    datetime.timedelta: datetime.timedelta.total_seconds,
    decimal.Decimal: str,
    uuid.UUID: str,
    PurePath: str,
}
