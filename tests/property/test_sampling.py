"""Sampling parameters as text: back they are the same, and equal ones are equal text."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tasks.core.request import SamplingParams, StructuredOutputs

TOKEN_IDS = st.integers(0, 2**31 - 1)
FORMS = st.builds(StructuredOutputs, st.sampled_from(["json", "json_object", "regex", "choice", "grammar"]), st.text())
PARAMETERS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 2**40),
    min_tokens=st.integers(0, 9),
    temperature=st.floats(0, 2),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    stop=st.lists(st.text(min_size=1), max_size=3).map(tuple),
    stop_token_ids=st.lists(TOKEN_IDS, max_size=3).map(tuple),
    bad_words=st.lists(st.text(min_size=1), max_size=3).map(tuple),
    logit_bias=st.dictionaries(TOKEN_IDS, st.floats(-100, 100), max_size=3).map(lambda given: tuple(sorted(given.items()))),
    logprobs=st.none() | st.integers(0, 20),
    structured_outputs=st.none() | FORMS,
)


@given(PARAMETERS)
def test_text_gives_the_same_parameters(sampling: SamplingParams) -> None:
    """Whatever is asked, also 0 alternatives and an empty pattern, comes back from its text, which stays the same."""
    text = sampling.to_json()
    again = SamplingParams.from_json(text)
    assert again == sampling
    assert again.to_json() == text
    assert hash(again) == hash(sampling)
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
