"""The values that rows' fields may have: numbers with their ranges and text that results can hold."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

MAX_EXACT = 2**53
"""Beyond it a floating point number is no longer one whole number."""


def _no_nul(text: str) -> str:
    """A NUL is never meant, and databases and C libraries that read the results stop at it."""
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


def _in_digits(text: str) -> str:
    if not (text.isascii() and text.isdigit() and str(int(text[:10])) == text):
        raise ValueError(f"{text!r} is no token id")
    return text


def whole(value: Any) -> Any:
    """16.0 as 16: data frames write a column of whole numbers so when one of them is missing."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < MAX_EXACT else value


Text = Annotated[str, AfterValidator(_no_nul)]
Word = Annotated[Text, Field(min_length=1)]

Positive = Annotated[int, Field(ge=1), BeforeValidator(whole)]
NotNegative = Annotated[int, Field(ge=0), BeforeValidator(whole)]
TopK = Annotated[int, Field(ge=-1, lt=2**31), BeforeValidator(whole)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63), BeforeValidator(whole)]
Choices = Annotated[int, Field(ge=1, le=128), BeforeValidator(whole)]
Alternatives = Annotated[int, Field(ge=0, le=20), BeforeValidator(whole)]
TokenId = Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(whole)]
TokenIdKey = Annotated[str, AfterValidator(_in_digits)]

Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
