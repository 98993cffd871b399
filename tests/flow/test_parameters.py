"""What Prefect shows as a form and refuses; no API is needed for it."""

from dataclasses import fields
from typing import Any

import pytest
from prefect.exceptions import ParameterTypeError
from prefect.utilities.callables import parameter_schema
from pydantic import BaseModel

from flows.adhoc import adhoc
from flows.nightly import nightly
from tasks.core.config import EngineConfig, GroupConfig, ModelConfig, PowerConfig, RowConfig, SamplingDefaults
from tasks.parameters import Engine, Group, Model, Power, Rows, Sampling


@pytest.mark.parametrize(
    ("form", "settings", "elsewhere"),
    [
        (Model, ModelConfig, set()),
        (Sampling, SamplingDefaults, set()),
        (Engine, EngineConfig, set()),
        (Group, GroupConfig, set()),
        (Power, PowerConfig, set()),
        (Rows, RowConfig, {"max_reject_rate"}),
    ],
)
def test_forms_agree_with_the_core(form: type[BaseModel], settings: type[Any], elsewhere: set[str]) -> None:
    """Every setting of the core is in its form, with the same default and a description."""
    ours = {field.name: field.default for field in fields(settings)}
    shown = {name: field.default for name, field in form.model_fields.items() if name not in elsewhere}
    assert {name: tuple(value) if isinstance(value, list) else value for name, value in shown.items()} == ours
    assert all(field.description for field in form.model_fields.values())


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"model": {"name": "echo", "dtpye": "auto"}}, "model.dtpye: Extra inputs are not permitted"),
        ({"model": {"dtype": "float8"}}, "model.dtype: Input should be 'auto', 'bfloat16', 'float16' or 'float32'"),
        ({"sampling": {"max_tokens": 0}}, "sampling.max_tokens: Input should be greater than or equal to 1"),
        ({"group": {"near_duplicates": 1.5}}, "group.near_duplicates: Input should be less than or equal to 1"),
        ({"engine": {"max_num_seqs": "many"}}, "engine.max_num_seqs: Input should be a valid integer"),
        ({"power": {"control": "on"}}, "power.control: Input should be 'off', 'observe' or 'managed'"),
        ({"power": {"finish_by": "soon"}}, "power.finish_by.*: Value error, 'soon' is no moment; give a time such as 06:30"),
        ({"rows": {"max_reject_rate": 2}}, "rows.max_reject_rate: Input should be less than or equal to 1"),
        ({"timezone": "Mars/Olympus"}, "'Mars/Olympus' is no timezone"),
        ({"logical_date": "yesterday"}, "logical_date: Input should be a valid date"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters: dict[str, Any], reason: str) -> None:
    """A flow run with an unknown key or a bad value fails with the name of the key and what is wanted."""
    with pytest.raises(ParameterTypeError, match=reason):
        nightly.validate_parameters(parameters)


@pytest.mark.parametrize("flow", [nightly, adhoc], ids=["nightly", "adhoc"])
def test_schema_lets_the_server_refuse(flow: Any) -> None:
    """The schema that a deployment stores has bounds, choices, defaults, and no room for unknown keys."""
    schema = parameter_schema(flow).model_dump()
    forms = schema["definitions"]
    assert all(form["additionalProperties"] is False for form in forms.values())
    assert forms["Model"]["properties"]["dtype"]["enum"] == ["auto", "bfloat16", "float16", "float32"]
    assert forms["Sampling"]["properties"]["max_tokens"]["minimum"] == 1
    defaults = {"max_tokens": 512, "temperature": 0.0, "seed": 0, "top_p": 1.0, "top_k": 0, "stop": []}
    assert schema["properties"]["sampling"]["default"] == defaults
    assert all("description" in shown or "$ref" in shown for shown in schema["properties"].values())
    assert schema["required"] == (["inputs"] if flow is adhoc else [])


def test_json_becomes_the_core_settings() -> None:
    """Numbers are read as the core writes them, because a run is named by its settings."""
    given = {"sampling": {"temperature": 0}, "model": {"name": "echo", "served_model_names": ["a"]}}
    read = nightly.validate_parameters(given)
    assert repr(read["sampling"]) == repr(SamplingDefaults())
    assert read["model"] == ModelConfig("echo", served_model_names=("a",))
    assert type(read["model"]) is ModelConfig
