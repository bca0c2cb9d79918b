"""The base of every file format that scav reads or writes, and what is said when a file does not keep to it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
)
from pydantic_core import ErrorDetails

from planner.errors import did_you_mean

KeyPath = tuple[str | int, ...]
FORMS: dict[str, str] = {}  # what a text must be, in words, by the pattern that says so: an error shows the words
Share = Annotated[float, Field(ge=0, le=1)]


class Contract(BaseModel):
    """Immutable and closed: a key that nobody knows is a mistake, not an extension."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class WithLaterKeys(Contract):
    """Has keys that came later: where they say nothing they are left out, so that other files keep their bytes."""

    later_keys: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_silent_keys(self, content_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = content_of(self)
        return {key: value for key, value in content.items() if value or key not in self.later_keys}


class Interval(Contract):
    """The middle, and what 5 % of runs stay below and above."""

    p05: NonNegativeFloat
    p50: NonNegativeFloat
    p95: NonNegativeFloat


def six_digits(value: object) -> object:
    """Of every number in it."""
    if isinstance(value, dict):
        return {key: six_digits(item) for key, item in value.items()}
    if isinstance(value, list):
        return [six_digits(item) for item in value]
    return kept_digits(value) if isinstance(value, float) else value


def kept_digits(value: float) -> float:
    """As files keep it: the last bits of floating point arithmetic on another processor do not show."""
    return float(f"{value:.6g}")


def text_form(pattern: str, words: str, longest: int | None = None) -> StringConstraints:
    """A text that must match; `words` say to a person what the pattern says."""
    FORMS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=longest)


class Fault(NamedTuple):
    """The first thing that is wrong with a file: where, and one sentence."""

    path: KeyPath
    message: str

    @property
    def key(self) -> str | None:
        return dotted(self.path) or None


def first_fault(error: ValidationError, model: type[BaseModel]) -> Fault:
    """The one way from pydantic's errors to ours. `model` is what the whole file should be."""
    details = error.errors(include_url=False)
    # A mistyped key also leaves its right spelling missing: naming the typo explains both.
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return Fault(tuple(first["loc"]), _sentence(first, model) + more)


def dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    context, shown = detail.get("ctx", {}), repr(detail["input"])
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(tuple(detail["loc"]), model)
        case "missing":
            return "this key is required"
        case "value_error":
            return str(context["error"])
        case "json_invalid":
            return f"is no JSON: {context['error']}"
        case "literal_error":
            return f"{shown} is not {'one of ' * (' or ' in context['expected'])}{context['expected']}"
        case "string_pattern_mismatch" if context["pattern"] in FORMS:
            return f"{shown} is not {FORMS[context['pattern']]}"
        case "tuple_type":
            return f"{shown} must be a list; write [a, b]"
        case "model_type" | "model_attributes_type":
            return f"{shown} must be a group of `key: value` lines"
        case _:
            return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {shown}"


def _unknown_key(path: KeyPath, model: type[BaseModel]) -> str:
    known = _known_keys(path[:-1], model)
    hint = did_you_mean(str(path[-1]), known) or f"; known here: {', '.join(known)}"
    return f"unknown key{hint}"


def _known_keys(path: KeyPath, model: type[BaseModel]) -> list[str]:
    for key in path:
        field = next((f for name, f in model.model_fields.items() if (f.alias or name) == key), None)
        if field is not None:
            model = _model_inside(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_inside(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _model_inside(part))), None)
