"""source.toml: what a source's folder says of its own rows, over what holds for the whole run.

Its keys are RowConfig's fields, `priority`, `deadline` and a table `[sampling]`; an unknown key, a value of the wrong type
and a file that is no TOML are errors that name the file and the key. What it says goes before the run's own settings.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.config import RowConfig, SourceConfig
from tasks.core.errors import ConfigError
from tasks.ingest.finding.folders import TEMPLATE_SUFFIXES
from tasks.ingest.finding.sources import SourceFile, source_folders
from tasks.ingest.shapes.protocol import first_error
from tasks.ingest.shapes.values import Text

NAME = "source.toml"
_MAX_TEMPLATE_BYTES = 1 << 20


class _Sampling(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: list[Text] | None = None


class _Source(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: str | None = None
    encoding: str | None = None
    record_path: str | None = None
    prompt_column: str | None = None
    messages_column: str | None = None
    id_column: str | None = None
    prompt_template: str | None = None
    prompt_template_file: str | None = None
    system: str | None = None
    truncate_prompt: str | None = None
    fields: list[Text] | None = None
    reorder_fields: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    deadline: datetime | None = None
    sampling: _Sampling | None = None


def read_source_configs(
    files: Sequence[SourceFile], paths: Sequence[str | Path], source: str | None, default: SourceConfig
) -> dict[str, SourceConfig]:
    """What holds for each source of these files, found under these paths: its own source.toml over `default`.

    Raises ConfigError for one that is wrong, and for two of one source that differ.
    """
    check_template(default.rows, "--prompt-template")
    configs = {file.source: default for file in files}
    said_in: dict[str, Path] = {}
    folders = source_folders(paths, source)
    for path in (Path(os.path.expanduser(place)) / NAME for place in paths):
        if path.is_file() and all(path.parent != folder for _, folder in folders):
            raise ConfigError(f"{path}: its folder has sub-folders, each of which is a source; put it into theirs")
    for name, folder in folders:
        path = folder / NAME
        if name not in configs or not path.is_file():
            continue
        config = _read(path, default)
        if name in said_in and configs[name] != config:
            raise ConfigError(f"{said_in[name]} and {path} say different things of source {name!r}: keep one of them")
        configs[name], said_in[name] = config, path
    return configs


def rows_of(given: Mapping[str, Any]) -> RowConfig:
    """The settings of rows as the user gives them, with the text of the template file that they name: what a run is named
    by is the text. Fields may have commas between them."""
    template, fields = given.get("prompt_template"), given.get("fields")
    if isinstance(fields, str):
        fields = [name.strip() for name in fields.split(",")]
    text = template and template_text(template, Path())
    return RowConfig(**{**given, "prompt_template": text, "fields": tuple(fields or ())})


def template_text(given: str, folder: Path) -> str:
    """A template as it is given, or what is in the file that it names behind an @."""
    return _template_file(folder / Path(given[1:]).expanduser()) if given.startswith("@") else given


def check_template(rows: RowConfig, where: str) -> None:
    """Raise ConfigError when the rows' template is none, or has no place for the fields that are to be there."""
    if rows.prompt_template is not None:
        from tasks.ingest.shapes.template import compiled

        try:
            has_place = compiled(rows.prompt_template).has_place
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if not has_place and rows.places_fields:
            key = "fields" if rows.fields else "reorder_fields"
            raise ConfigError(f"{where}: {key} needs a place in the prompt template: {{{{ fields }}}}")


def _template_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_TEMPLATE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"prompt template {path}: not valid UTF-8 at byte {error.start}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"prompt template {path}: {why} (a template that begins with @ names a file)") from error
    if len(data) > _MAX_TEMPLATE_BYTES:
        raise ConfigError(f"prompt template {path}: larger than {_MAX_TEMPLATE_BYTES:,} bytes; is it the right file?")
    return text


def _read(path: Path, default: SourceConfig) -> SourceConfig:
    """One file over the run's settings."""
    try:
        said = _Source.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        config = _over(default, said, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {_explained(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    check_template(config.rows, str(path))
    return config


def _explained(error: ValidationError) -> str:
    for one in error.errors(include_url=False, include_input=False):
        if one["type"] == "extra_forbidden":
            *table, key = map(str, one["loc"])
            form = _Sampling if table else _Source
            close = get_close_matches(key, form.model_fields, 1)
            meant = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(form.model_fields)}"
            return f"unknown key {'.'.join([*table, key])!r}; {meant}"
    return first_error(error, {})


def _over(default: SourceConfig, said: _Source, path: Path) -> SourceConfig:
    """What a file says over the run's settings; an empty text takes back what the run says."""
    given = said.model_dump(exclude_unset=True, exclude={"priority", "deadline", "sampling", "prompt_template_file"})
    rows: dict[str, Any] = {key: value or getattr(RowConfig(), key) for key, value in given.items()}
    if said.prompt_template_file is not None:
        if said.prompt_template is not None:
            raise ConfigError("prompt_template and prompt_template_file are both given: keep one of them")
        rows["prompt_template"] = f"@{said.prompt_template_file}"
    if template := rows.get("prompt_template"):
        rows["prompt_template"] = template_text(template, path.parent)
        name = template.removeprefix("@")
        if template.startswith("@") and not name.lower().endswith(TEMPLATE_SUFFIXES):
            endings = ", ".join(TEMPLATE_SUFFIXES)
            raise ConfigError(f"the template file {name!r} must end in one of {endings}, or it would be read as data")
    elif {"prompt_column", "messages_column"} & rows.keys():
        rows["prompt_template"] = None  # the run's template is for sources that say nothing of their columns
    if "prompt_template" in rows:  # and so are its fields
        rows.setdefault("fields", ())
        rows.setdefault("reorder_fields", False)
    if "fields" in rows:
        rows["fields"] = tuple(rows["fields"])
    sampling = said.sampling.model_dump(exclude_unset=True) if said.sampling else {}
    if "stop" in sampling:
        sampling["stop"] = tuple(sampling["stop"])
    return SourceConfig(
        replace(default.rows, **rows),
        replace(default.sampling, **sampling),
        default.priority if said.priority is None else said.priority,
        _aware(said.deadline) if said.deadline else default.deadline,
    )


def _aware(deadline: datetime) -> datetime:
    if deadline.tzinfo is None:
        raise ConfigError(f"deadline must say how far it is from UTC, as in {deadline.isoformat()}-05:00")
    return deadline.astimezone(UTC)
