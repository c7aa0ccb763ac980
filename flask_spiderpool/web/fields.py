"""Marshmallow fields that take JSON's own types and nothing that merely looks like them."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, fields


class Number(fields.Float):
    """A JSON number; neither text nor true."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.make_error("invalid", input=value)
        return super()._deserialize(value, *args, **kwargs)


class Whole(fields.Integer):
    """A JSON number without a fraction; neither text nor true."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.make_error("invalid", input=value)
        return super()._deserialize(value, *args, **kwargs)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strict=True, **kwargs)


class Flag(fields.Boolean):
    """true or false."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(value, bool):
            raise self.make_error("invalid", input=value)
        return value


class OneOrMany(fields.List[str]):
    """One text, or a list of them; always loaded as a list."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(fields.String(), **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        found = super()._deserialize([value] if isinstance(value, str) else value, *args, **kwargs)
        if not found:
            raise ValidationError("must name at least one")
        return found


def one_or_many_properties(self: Any, field: Any, **_: Any) -> dict[str, Any]:
    """Describe :class:`OneOrMany` to OpenAPI."""
    if not isinstance(field, OneOrMany):
        return {}
    text = {"type": "string"}
    return {"oneOf": [text, {"type": "array", "items": text, "minItems": 1}]}
