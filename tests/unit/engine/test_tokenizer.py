"""A chat through the model's template: tools where it has a place for them, and a refusal where it has none."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.core.protocols import Tokenizer
from tasks.engine.tokenizer import ByteTokenizer, ModelTokenizer

TURNS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
SHOWN = "{% if tools %}{{ tools | tojson }}{% endif %}" + TURNS
UNSET = "{% if not tools is defined %}{% set tools = none %}{% endif %}{% if tools is not none %}T{% endif %}" + TURNS
CALLS = "{% for m in messages %}[{{ m.role }}]{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
SPOKEN = "{# tools #}{% set x = 'tools' %}{% for tools in [1] %}{% endfor %}" + TURNS
TRAINED = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{% if tools %}T{% endif %}"

USER: dict[str, object] = {"role": "user", "content": "hi"}
CALLED: dict[str, object] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {}}}],
}
TOOLS: list[dict[str, object]] = [{"type": "function", "function": {"name": "weather"}}]
Open = Callable[[object], Tokenizer]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """The tokenizer of a model folder with such a chat template."""
    from tokenizers import Tokenizer as Words
    from tokenizers import models
    from transformers import PreTrainedTokenizerFast

    def make(template: object) -> Tokenizer:
        words = PreTrainedTokenizerFast(tokenizer_object=Words(models.WordLevel({"hi": 0, "[UNK]": 1}, unk_token="[UNK]")))
        words.chat_template = template
        words.save_pretrained(tmp_path)
        config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 64}
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return ModelTokenizer(tmp_path, None)

    return make


@pytest.mark.parametrize("template", [SHOWN, {"default": TURNS, "tool_use": SHOWN}], ids=["one", "two"])
def test_tools_in_a_template(opened: Open, template: object) -> None:
    """The template gets the definitions, and without any it is the chat that it was."""
    tokenizer = opened(template)
    assert tokenizer.render([USER], TOOLS) == f"{json.dumps(TOOLS)}[user]hi[assistant]"
    assert (
        tokenizer.render([USER]) == tokenizer.render([USER], None) == tokenizer.render([USER], []) == "[user]hi[assistant]"
    )


@pytest.mark.parametrize("template", [UNSET, TRAINED])
def test_templates_that_read_tools_in_their_own_way(opened: Open, template: str) -> None:
    """A name that is set only where nobody gave it, and tags for training, do not hide that tools are read."""
    tokenizer = opened(template)
    assert "T" in tokenizer.render([USER], TOOLS)
    assert "T" not in tokenizer.render([USER])


@pytest.mark.parametrize("template", [TURNS, SPOKEN, None])
def test_a_template_without_a_place_for_tools(opened: Open, template: str | None) -> None:
    """The word in a comment, in a text or as the template's own name is no place; nor is there one without a template."""
    tokenizer = opened(template)
    with pytest.raises(ValueError, match="no place for"):
        tokenizer.render([USER], TOOLS)
    assert "hi" in tokenizer.render([USER])


def test_earlier_calls(opened: Open) -> None:
    """They are shown where the template shows them, and refused where they would be left out."""
    assert "weather" in opened(CALLS).render([USER, CALLED])
    with pytest.raises(ValueError, match="no place for the 'tool_calls'"):
        opened(TURNS).render([USER, CALLED])


def test_the_stand_in_shows_them_too() -> None:
    """A dry run's prompt grows with tools and calls as a model's would."""
    shown = ByteTokenizer().render([USER, CALLED], TOOLS)
    assert shown.startswith(f"tools: {json.dumps(TOOLS)}\nuser: hi\n")
    assert shown.count("weather") == 2
    assert ByteTokenizer().render([USER]) == "user: hi\nassistant: "
