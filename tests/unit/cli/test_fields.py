"""A table's fields in order, through the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

WriteJsonl = Callable[..., Path]

TEMPLATE = ("--prompt-template", "Classify.\n{{ fields }}\nAnswer:")
ECHO = ("--model", "echo", "--max-tokens", "2000")
ROWS = [{"id": f"p{i}", "title": f"thing {i}", "brand": f"maker {i % 2}", "about": "long text " * 5} for i in range(6)]


def test_a_run_with_an_order(cli: Any, write_jsonl: WriteJsonl) -> None:
    """It is a run of its own, done when it is asked again; each answer is of its own row, under its own id."""
    path = write_jsonl(ROWS)
    asked = ("run", str(path), *ECHO, *TEMPLATE, "--fields", "title,brand,about")
    plain = cli.json(*asked)
    ordered = cli.json(*asked, "--reorder-fields")
    assert plain["run_id"] != ordered["run_id"]
    assert cli.json(*asked, "--reorder-fields") == {**ordered, "was_done": True}
    done = "from requests join results using (request_id) where requests.text like '%\nabout:%title:%'"
    answers = cli.sql(f"select distinct requests.custom_id, text {done} and run_id = '{ordered['run_id']}'")
    assert len(answers) == len(ROWS)
    for answer in answers:
        row = ROWS[int(answer["custom_id"][1:])]
        lines = [f"about: {row['about']}", f"brand: {row['brand']}", f"title: {row['title']}"]
        assert answer["text"] == "\n".join(["Classify.", *lines, "Answer:"])


def test_an_export_that_joins_the_rows(cli: Any, write_jsonl: WriteJsonl) -> None:
    """The table comes back with its columns as they were, in their own order."""
    run = cli.json("run", str(write_jsonl(ROWS)), *ECHO, *TEMPLATE, "--reorder-fields")
    out = cli.home / "out.csv"
    done = cli("export", run["run_id"], "--join", "-o", str(out))
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    assert lines[0].startswith("id,title,brand,about")


def test_a_field_that_is_in_no_row(cli: Any, write_jsonl: WriteJsonl) -> None:
    """The command ends with the name, and with those that are there."""
    done = cli("run", str(write_jsonl(ROWS)), *ECHO, *TEMPLATE, "--fields", "brnd", "--reorder-fields")
    assert done.returncode == 2
    assert "fields: no field 'brnd'; the row has 'id', 'title', 'brand', 'about'" in done.stderr


def test_no_place_for_fields(cli: Any, write_jsonl: WriteJsonl) -> None:
    """A template without {{ fields }} cannot have them in order."""
    done = cli("run", str(write_jsonl(ROWS)), *ECHO, "--prompt-template", "{{ title }}", "--reorder-fields")
    assert (done.returncode, done.stdout) == (2, "")
    assert "reorder_fields needs a place in the prompt template: {{ fields }}" in done.stderr
