"""Input that is no local file: patterns, standard input, pipes and URLs; and that nothing secret is shown of it."""

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import InputError
from tasks.ingest.finding.elsewhere import from_stdin, sniffed_format
from tasks.ingest.finding.sources import SourceFile, digest_file, discover
from tasks.storage.remote import RemoteFile, copy_remote, redacted
from tasks.storage.spool import sweep

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]
ROW = '{"prompt": "hi"}'


def names(files: list[SourceFile]) -> list[tuple[str, str]]:
    return [(file.source, file.name) for file in files]


# Patterns


def test_patterns(put: Put, tmp_path: Path) -> None:
    """A pattern that no shell replaced stands for its files, each a source like itself; notes and halves are no data."""
    for name in ("a.jsonl", "b.jsonl.gz", "c.csv", "x/a.jsonl", "x/y/d.jsonl", "README.md", "x/e.jsonl.part"):
        put(name, ROW)
    top = tmp_path / "in"
    assert names(discover([top / "*.jsonl*"], None)) == [("a", "a.jsonl"), ("b", "b.jsonl.gz")]
    everywhere = [("a", "a.jsonl"), ("a", "x/a.jsonl"), ("d", "x/y/d.jsonl")]
    assert names(discover([f"{top}/**/*.jsonl"], None)) == everywhere
    assert names(discover([f"{top}/**"], "s")) == sorted(
        ("s", name) for name in ("a.jsonl", "b.jsonl.gz", "c.csv", "x/a.jsonl", "x/y/d.jsonl")
    )
    assert names(discover([f"{top}/?.c[s]v"], None)) == [("c", "c.csv")]
    assert names(discover([f"{top}/x/[y]"], None)) == [("y", "d.jsonl")]


def test_a_pattern_that_nothing_fits(put: Put, tmp_path: Path) -> None:
    """It stops with the pattern; a file that is really called so is the file."""
    put("a.jsonl", ROW)
    with pytest.raises(InputError, match=r"no file fits the pattern .*\*\.csv"):
        discover([tmp_path / "in" / "*.csv"], None)
    assert names(discover([put("a[1].jsonl", ROW)], None)) == [("a[1]", "a[1].jsonl")]


# Standard input and pipes


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (ROW.encode(), "jsonl"),
        (b"\n" + ROW.encode() + b"\nbroken\n", "jsonl"),
        (b'{"prompt": broken', "jsonl"),
        (gzip.compress(ROW.encode()), "jsonl"),
        (ROW.encode("utf-16"), "jsonl"),
        (b"", "jsonl"),
        (b"[" + ROW.encode() + b"]", "json"),
        (json.dumps({"prompt": "hi"}, indent=2).encode(), "json"),
        (b"prompt,id\nhi,1\n", None),
        (b"PAR1....", "parquet"),
        (b"ARROW1\0\0", "arrow"),
    ],
)
def test_formats_are_told_by_content(tmp_path: Path, data: bytes, kind: str | None) -> None:
    """What has no telling name shows whether it is JSON or a table of columns, and is not guessed to be CSV."""
    (tmp_path / "stdin").write_bytes(data)
    assert sniffed_format(tmp_path / "stdin") == kind


def test_standard_input(tmp_path: Path) -> None:
    """It is kept by its content: the same input is the same dataset, under one name."""
    first, second = (from_stdin(None, tmp_path, io.BytesIO(ROW.encode())) for _ in range(2))
    assert (first.source, first.name, first.format, first.shown) == ("stdin", "stdin", "jsonl", "standard input")
    assert first == second
    assert digest_file(first) == digest_file(second) != digest_file(from_stdin(None, tmp_path, io.BytesIO()))
    assert first.path.read_text() == ROW


def test_standard_input_of_the_command(tmp_path: Path) -> None:
    """`nightbatch run -` answers what is piped into it, and CSV with --format."""
    for text, options in ((ROW, []), ("prompt\nhi\n", ["--format", "csv"])):
        command = [
            sys.executable,
            "-P",
            "-m",
            "flows.cli",
            "run",
            "-",
            "--model",
            "echo",
            "--max-tokens",
            "2",
            *options,
            "--json",
        ]
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        )
        assert json.loads(done.stdout)["results"] == 1, done.stderr


@pytest.mark.parametrize("name", ["pipe", "pipe.csv"])
def test_a_named_pipe(tmp_path: Path, read: Read, name: str) -> None:
    """What comes out of a pipe is input, in the format that its name or its content says; in a folder it is passed over."""
    os.mkfifo(tmp_path / name)
    text = "prompt\nhi\n" if name.endswith("csv") else ROW
    writer = threading.Thread(target=(tmp_path / name).write_text, args=(text,))
    writer.start()
    [file] = discover([tmp_path / name], None, copies=tmp_path / "copies")
    writer.join()
    assert (file.source, file.name, file.path.read_text()) == ("pipe", name, text)
    assert file.format == ("csv" if name.endswith("csv") else "jsonl")
    with pytest.raises(InputError, match="no input files"):
        (tmp_path / "copies").rename(tmp_path / ".copies")
        discover([tmp_path], None)


def test_process_substitution(tmp_path: Path) -> None:
    """A descriptor's number is no part of the name, so that the same command is the same run."""
    found = []
    for _ in range(2):
        out, into = os.pipe()
        os.write(into, ROW.encode())
        os.close(into)
        found.append(discover([f"/dev/fd/{out}"], None, copies=tmp_path))
        os.close(out)
    assert names(found[0]) == [("pipe", "pipe")]
    assert digest_file(found[0][0]) == digest_file(found[1][0])


# Elsewhere


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's store in memory, empty before and after."""
    import fsspec

    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)
    store.pseudo_dirs[:] = [""]


def test_a_folder_elsewhere(memory: Any, tmp_path: Path, put: Put) -> None:
    """Files under a URL are found, named and left out as those of a folder are, and copied."""
    for name in (
        "mails/a.jsonl",
        "mails/deep/b.jsonl.gz",
        "mails/README.md",
        "faq/x.csv",
        "faq/y.csv.part",
        ".hidden/z.csv",
    ):
        memory.pipe(f"/in/{name}", ROW.encode())
        put(name, ROW)
    notes: list[str] = []
    files = discover(["memory://in"], None, copies=tmp_path / "copies", note=notes.append)
    assert names(files) == names(discover([tmp_path / "in"], None))
    assert {file.path.read_text() for file in files} == {ROW}
    assert files[0].shown == "memory://in/faq/x.csv"
    assert notes == ["memory://in/faq/y.csv.part is left out: its name says that it is not whole yet"]
    assert names(discover(["memory://in/**/*.jsonl"], "s", copies=tmp_path)) == [("s", "a.jsonl")]
    assert names(discover(["memory://in/mails/a.jsonl"], None, copies=tmp_path)) == [("a", "a.jsonl")]
    memory.pipe("/in/loose.csv", b"x")
    with pytest.raises(InputError, match=r"memory://in has both sub-folders and files \(loose\.csv\)"):
        discover(["memory://in"], None, copies=tmp_path)
    with pytest.raises(InputError, match="no such file or folder: memory://nowhere"):
        discover(["memory://nowhere"], None, copies=tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A web server of `in/`."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    (tmp_path / "in").mkdir(exist_ok=True)
    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "in")))
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f"127.0.0.1:{serving.server_port}"
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_a_file_of_the_web(put: Put, server: str, tmp_path: Path) -> None:
    """It is copied as it is, fetched once for each version, and no word of its signature is shown."""
    pytest.importorskip("aiohttp")
    path = put("a b.jsonl.gz", ROW)
    url = f"http://user:passw0rd@{server}/a%20b.jsonl.gz?X-Signature=topsecret"
    [file] = discover([url], None, copies=tmp_path / "copies")
    assert (file.source, file.name, file.shown) == ("a b", "a b.jsonl.gz", f"http://{server}/a%20b.jsonl.gz")
    assert file.path.read_bytes() == path.read_bytes()
    file.path.write_text("kept")
    assert discover([url], None, copies=tmp_path / "copies")[0].path.read_text() == "kept"
    path.write_text("changed")
    os.utime(path, (1, 1))
    assert discover([url], None, copies=tmp_path / "copies")[0].path.read_text() == "changed"
    with pytest.raises(InputError, match="no such file") as error:
        discover([url.replace("a%20b", "none")], None, copies=tmp_path)
    assert "topsecret" not in str(error.value)
    assert "passw0rd" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:secret@bucket/a/b?endpoint_override=x&secret_key=hush", "s3://bucket/a/b"),
        ("https://u@host:8/x.csv?sig=1#token", "https://host:8/x.csv"),
        ("data/a?b.jsonl", "data/a?b.jsonl"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    """User, password, query and fragment are not shown; paths are as they are."""
    assert redacted(url) == shown


def test_messages_of_libraries_are_shown_without_secrets(tmp_path: Path) -> None:
    """What a library says of a URL that it cannot read is cleaned."""
    url = "s3://mykey:hushhush@bucket/x?no_such_option=topsecret"
    with pytest.raises(InputError, match=r"cannot read s3://bucket/x: .*no_such_option") as error:
        discover([url], None, copies=tmp_path)
    assert not any(secret in str(error.value) for secret in ("mykey", "hushhush", "topsecret"))
    assert error.value.__suppress_context__


def test_a_scheme_that_nobody_knows(tmp_path: Path) -> None:
    """It stops with the URL."""
    with pytest.raises(InputError, match="cannot read nope://x/y: Protocol not known"):
        discover(["nope://x/y"], None, copies=tmp_path)


def test_a_library_that_is_missing(tmp_path: Path) -> None:
    """It stops with the library's name and how the usual one is installed."""
    with pytest.raises(InputError, match=r"smb://host/x: .*smbprotocol.*\[remote\]"):
        discover(["smb://host/x"], None, copies=tmp_path)


def test_a_local_url_is_a_path(put: Put) -> None:
    """file:// is a file or folder here, and needs no copy."""
    path = put("a b.jsonl", ROW)
    [file] = discover([path.as_uri()], None)
    assert (file.path, file.name) == (path, "a b.jsonl")


def test_a_file_that_changed_while_it_was_copied(memory: Any, tmp_path: Path) -> None:
    """Fewer or more bytes than were listed are refused."""
    memory.pipe("/a.csv", b"12345")
    with pytest.raises(InputError, match="5 bytes came instead of 4"):
        copy_remote(RemoteFile("memory://a.csv", "/a.csv", "a.csv", 4, None), tmp_path / "copy")


def test_old_copies_are_removed(tmp_path: Path) -> None:
    """A copy that nobody asked for in three days goes, and no other."""
    for name, age in (("old", 4), ("new", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
        os.utime(tmp_path / name, (1e9 - age * 86_400, 1e9 - age * 86_400))
    sweep(tmp_path, 1e9)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
