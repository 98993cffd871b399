"""Tool definitions as OpenAI writes them, checked, and in the form in which a chat template reads them.

The model is told of its tools; what it then says is its answer as it stands. Nothing makes it call one, and nothing keeps
its calls to a schema: what asks for either is refused.
"""

import json
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from tasks.ingest.shapes.values import Text, Word

_MAX_NAME_CHARS = 256


def _a_schema(parameters: dict[str, Any]) -> dict[str, Any]:
    if wrong := _problem(json.dumps(parameters)):
        raise ValueError(wrong)
    return parameters


@lru_cache(maxsize=256)
def _problem(spec: str) -> str | None:
    """What is wrong with a tool's JSON schema by JSON Schema's own rules; most rows of a file bring the same one."""
    from jsonschema import Draft202012Validator, SchemaError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `re`, about patterns that it reads differently one day
        try:
            Draft202012Validator.check_schema(json.loads(spec))
        except SchemaError as error:
            return f"is no valid JSON schema: at {error.json_path}, {error.message}"
    return None


def _not_strict(value: Any) -> Any:
    if value is True:
        raise ValueError("calls are not kept to their schema here; leave it out")
    return value


def _known_kind(value: Any) -> Any:
    if isinstance(value, str) and value != "function":
        raise ValueError(f"a tool of type {value!r} is not supported: only 'function' is")
    return value


def _free_choice(value: Any) -> Any:
    """Nothing, or one of the choices that leave it to the model."""
    if value in (None, "none", "auto"):
        return value
    raise ValueError("a call cannot be forced: only 'auto' and 'none' are supported")


Schema = Annotated[dict[str, Any], AfterValidator(_a_schema)]
NotStrict = Annotated[bool | None, BeforeValidator(_not_strict)]
FunctionKind = Annotated[Literal["function"], BeforeValidator(_known_kind)]
ToolName = Annotated[Word, Field(max_length=_MAX_NAME_CHARS)]
ToolChoice = Annotated[Any, AfterValidator(_free_choice)]


class FunctionDefinition(BaseModel):
    """A function that the model may call."""

    name: ToolName
    description: Text | None = None
    parameters: Schema | None = None
    strict: NotStrict = None


class Tool(BaseModel):
    """A tool of a chat."""

    type: FunctionKind
    function: FunctionDefinition


Tools = Annotated[list[Tool], Field(fail_fast=True)]


def tools_json(tools: Sequence[Tool] | None) -> str | None:
    """The definitions as JSON text, with the fields that vLLM hands to a template, in its order; None for no tools."""
    definitions = [tool.model_dump(exclude={"function": {"strict"}}) for tool in tools or ()]
    return json.dumps(definitions, ensure_ascii=False) if definitions else None
