"""Chat templates, filled by frames or not: always what Jinja2 makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tasks.engine.frames import Frame, ObservedError, holes, may_have_frames

CHATML = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
TRIMMED = """{% for m in messages %}{% set content = '[' + m.role + ']' + m['content'] | trim + '.' %}
{% if loop.index0 == 0 %}{% set content = 'BOS' + content %}{% endif %}{{ content }}{% endfor %}"""
HAVE_FRAMES = {
    "chatml": CHATML,
    "trimmed": TRIMMED,
    "stripped": "{% for m in messages %}{{ m.content.strip() + m.content.rstrip() + '|' }}{% endfor %}",
    "some": "{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}",
    "gathered": "{% set a = namespace(s='') %}{% for m in messages %}{% set a.s = a.s + m.content %}{% endfor %}{{ a.s }}",
    "text only": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% endfor %}",
}
HAVE_NONE = {
    "empty or not": "{% for m in messages %}{% if m.content %}{{ m.content }}{% endif %}{% endfor %}",
    "equal": "{% for m in messages %}{% if 'a' == m.content %}x{% endif %}{% endfor %}",
    "less": "{% for m in messages %}{% if 'a' < m.content %}x{% endif %}{% endfor %}",
    "contains": "{% for m in messages %}{% if '</think>' in m.content %}x{% endif %}{% endfor %}",
    "contained": "{% for m in messages %}{% if m.content in 'abc' %}x{% endif %}{% endfor %}",
    "split": "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}",
    "json": "{% for m in messages %}{{ m.content | tojson }}{% endfor %}",
    "joined": "{{ messages | map(attribute='content') | join }}",
    "trimmed late": "{% for m in messages %}{{ ('x' + m.content) | trim }}{% endfor %}",
    "trimmed of some": "{% for m in messages %}{{ m.content.strip('\n') }}{% endfor %}",
    "concatenated": "{% for m in messages %}{{ (m.content ~ ' ') | trim }}{% endfor %}",
    "formatted": "{% for m in messages %}{{ '%s' % m.content }}{% endfor %}",
    "format": "{% for m in messages %}{{ '{}'.format(m.content) }}{% endfor %}",
    "sliced": "{% for m in messages %}{{ m.content[:2] }}{% endfor %}",
    "counted": "{% for m in messages %}{{ m.content | length }}{% endfor %}",
    "letters": "{% for m in messages %}{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}",
    "looked up": "{% for m in messages %}{{ {'a': 1}[m.content] }}{% endfor %}",
    "repeated": "{{ messages[0].content * 2 }}",
    "shown": "{{ messages }}",
    "macro": "{% macro f(x) %}{{ x }}{% endmacro %}{% for m in messages %}{{ f(m.content) | trim }}{% endfor %}",
    "the date": "{{ strftime_now('%d') }}{{ messages[0].content }}",
    "a mistake": "{% for %}",
}
ROLES = ("system", "user", "assistant", "user")


def rendered(template: str, contents: list[str]) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": role, "content": content} for role, content in zip(ROLES, contents, strict=True)]
    return environment.from_string(template).render(messages=messages)


@pytest.mark.parametrize("name", HAVE_FRAMES)
@given(contents=st.lists(st.text(), min_size=4, max_size=4))
def test_a_filled_frame_is_what_the_template_gives(name: str, contents: list[str]) -> None:
    """For any texts, white space around them included."""
    template = HAVE_FRAMES[name]
    assert may_have_frames(template)
    assert Frame(rendered(template, holes(4))).filled(contents) == rendered(template, contents)


@pytest.mark.parametrize("name", HAVE_NONE)
def test_a_template_that_looks_at_the_text_has_no_frame(name: str) -> None:
    """It is told by its constructs, or by what it does to a hole."""
    template = HAVE_NONE[name]
    if may_have_frames(template):
        with pytest.raises(ObservedError):
            rendered(template, holes(4))
