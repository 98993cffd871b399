"""Paths to source files, in a fixed order, and the digest that names what is in them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import InputError
from tasks.ingest.finding.sources import SourceFile, digest_file, discover

Put = Callable[..., Path]
Read = Callable[..., tuple[list[dict[str, Any]], list[dict[str, Any]]]]


def names(files: list[SourceFile]) -> list[tuple[str, str]]:
    return [(file.source, file.name) for file in files]


def content(files: list[SourceFile]) -> tuple[tuple[str, str, str], ...]:
    """What names a dataset: each file's source, name and digest."""
    return tuple((file.source, file.name, digest_file(file)) for file in files)


# What is found


def test_an_inbox_of_folders(put: Put, tmp_path: Path) -> None:
    """Each sub-folder of an inbox is a source, its files named from there, in order of source and name."""
    for name in ("b/z.csv", "b/a.jsonl", "a/x.jsonl", "a/deep/er/y.tsv", "c d/é.ndjson"):
        put(name, "x")
    expected = [("a", "deep/er/y.tsv"), ("a", "x.jsonl"), ("b", "a.jsonl"), ("b", "z.csv"), ("c d", "é.ndjson")]
    files = discover([tmp_path / "in"], None)
    assert names(files) == expected
    assert [file.format for file in files] == ["tsv", "jsonl", "jsonl", "csv", "jsonl"]


def test_one_folder_is_one_source(put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of files is a source named like the folder, also when it is named by a dot."""
    put("mails/b.csv", "x")
    put("mails/a.csv", "x")
    assert names(discover([tmp_path / "in" / "mails"], None)) == [("mails", "a.csv"), ("mails", "b.csv")]
    monkeypatch.chdir(tmp_path / "in" / "mails")
    assert names(discover([Path(".")], None)) == [("mails", "a.csv"), ("mails", "b.csv")]


def test_one_file_is_one_source(put: Put) -> None:
    """A single file is a source named like itself without its ending, whatever it is called."""
    assert names(discover([put("mails.2026.jsonl", "x")], None)) == [("mails.2026", "mails.2026.jsonl")]
    assert names(discover([put("README.md", "x")], None)) == [("README", "README.md")]


def test_a_given_source_names_them_all(put: Put, tmp_path: Path) -> None:
    """With a source of the user's choice everything belongs to it."""
    put("a/x.jsonl", "x")
    put("b/y.jsonl", "x")
    loose = put("../z.jsonl", "x")
    files = discover([tmp_path / "in", loose], "mine")
    assert names(files) == [("mine", "x.jsonl"), ("mine", "y.jsonl"), ("mine", "z.jsonl")]


def test_several_paths_in_any_order(put: Put, tmp_path: Path) -> None:
    """The order of the paths does not matter, nor does naming a file twice by different paths."""
    paths = [put("b.jsonl", "x"), put("a.jsonl", "x"), put("c/c.jsonl", "x").parent]
    again = tmp_path / "in" / ".." / "in" / "a.jsonl"
    files = discover([*paths, again], None)
    assert names(files) == [("a", "a.jsonl"), ("b", "b.jsonl"), ("c", "c.jsonl")]
    assert names(discover([again, *reversed(paths)], None)) == names(files)


def test_notes_are_no_data(put: Put, tmp_path: Path) -> None:
    """Licences, notes, settings and all that is hidden, folders too, are passed over; a table of that name is data."""
    notes = ["README", "readme.txt", "LICENSE", "LICENSE.upstream", "NOTICE", "about.md", "source.toml", ".hidden.jsonl"]
    for name in [*notes, ".git/config.jsonl", ".ipynb_checkpoints/x.jsonl", "deep/.cache/x.jsonl", "deep/README.md"]:
        put(f"s/{name}", "x")
        put(name.replace("deep", "s"), "x")
    for name in ("s/x.jsonl", "s/notice.csv", "s/deep/License.jsonl"):
        put(name, "x")
    expected = [("s", "deep/License.jsonl"), ("s", "notice.csv"), ("s", "x.jsonl")]
    assert names(discover([tmp_path / "in"], None)) == expected


@pytest.mark.parametrize("name", ["a.xlsx", "a.jsonl.zip", "a.gz", "a", "_SUCCESS"])
def test_a_kind_that_is_not_read_is_one_reject(put: Put, read: Read, name: str) -> None:
    """A file of another kind is one reject with its name, not a silence and not a stop."""
    put("s/ok.jsonl", '{"prompt": "hi"}')
    [request], [reject] = read(put(f"s/{name}", b"\x1f\x8b\0\n\xff\n").parent)
    assert (request["file"], reject["file"]) == ("ok.jsonl", name)
    assert (reject["reason"], reject["line"]) == ("unsupported_format", 0)
    assert name in reject["message"]
    assert "--format" in reject["message"]


def test_names_that_are_not_utf8(put: Put, read: Read) -> None:
    """A file or folder name of other bytes is shown with replacement characters, and its rows are requests."""
    path = put("s\udce9/caf\udce9.jsonl", '{"prompt": "hi"}')
    [request], _ = read(path.parent)
    assert (request["source"], request["file"]) == ("s\ufffd", "caf\ufffd.jsonl")
    assert digest_file(discover([path], None)[0])


# Links


def test_links_to_files_are_followed(put: Put, tmp_path: Path) -> None:
    """A linked file is data under the link's name."""
    target = put("../elsewhere/data.jsonl", "x")
    put("s/a.jsonl", "x")
    (tmp_path / "in" / "s" / "b.jsonl").symlink_to(target)
    assert names(discover([tmp_path / "in" / "s"], None)) == [("s", "a.jsonl"), ("s", "b.jsonl")]


def test_links_to_folders_are_followed_once(put: Put, tmp_path: Path) -> None:
    """A linked folder is read, as a source or within one, and a link that leads back up ends there."""
    away = put("../elsewhere/deep/x.jsonl", "x").parent.parent
    put("s/a.jsonl", "x")
    inbox = tmp_path / "in"
    (inbox / "linked").symlink_to(away)
    (inbox / "s" / "loop").symlink_to(inbox / "s")
    (inbox / "s" / "more").symlink_to(away)
    (inbox / "s" / "twice").symlink_to(away)
    assert names(discover([inbox], None)) == [("linked", "deep/x.jsonl"), ("s", "a.jsonl"), ("s", "more/deep/x.jsonl")]


@pytest.mark.parametrize("target", ["nowhere.jsonl", "lost.jsonl"])
def test_a_link_that_leads_nowhere_is_missed(put: Put, tmp_path: Path, target: str) -> None:
    """A dangling link, or one to itself, stops with its name: its rows are expected and not there."""
    put("s/a.jsonl", "x")
    (tmp_path / "in" / "s" / "lost.jsonl").symlink_to(target)
    files = discover([tmp_path / "in" / "s"], None)
    with pytest.raises(InputError, match=r"cannot read .*lost\.jsonl"):
        [digest_file(file) for file in files]


# What is wrong


@pytest.mark.parametrize("name", ["missing", "missing/in.jsonl", "~nobody-here/x", "x" * 300, "nul\0"])
def test_a_path_that_is_not_there(tmp_path: Path, name: str) -> None:
    """A path that is missing, or cannot be one, stops with its name."""
    with pytest.raises(InputError, match=r"no such file or folder|cannot read"):
        discover([tmp_path / name], None)


def test_a_home_that_is_not_there() -> None:
    """A user that is not there is a path that is not there."""
    with pytest.raises(InputError, match="no such file or folder: ~nobody-here/x"):
        discover([Path("~nobody-here/x")], None)


def test_home_is_known(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde stands for the user's home."""
    monkeypatch.setenv("HOME", str(put("x.jsonl", "x").parent))
    assert names(discover([Path("~/x.jsonl")], None)) == [("x", "x.jsonl")]


def test_a_folder_that_cannot_be_read(put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sub-folder without permission is not silently left out."""
    closed = put("s/closed/x.jsonl", "x").parent
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if os.fspath(path) == os.fspath(closed):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(InputError, match=r"cannot read .*closed: Permission denied"):
        discover([tmp_path / "in"], None)


@pytest.mark.parametrize("content", [[], ["README.md"], ["a/README.md", "b/.hidden"], ["a/.git/x.jsonl"]])
def test_an_empty_inbox(put: Put, tmp_path: Path, content: list[str]) -> None:
    """An inbox without data says where files belong."""
    (tmp_path / "in").mkdir()
    for name in content:
        put(name, "x")
    with pytest.raises(InputError, match=r"no input files in .*in; put \.jsonl or \.csv files there"):
        discover([tmp_path / "in"], None)


def test_files_beside_the_sources(put: Put, tmp_path: Path) -> None:
    """A data file that lies loose in an inbox belongs to no source, so it stops with its name; notes do not."""
    put("s/a.jsonl", "x")
    put("README.md", "x")
    assert names(discover([tmp_path / "in"], None)) == [("s", "a.jsonl")]
    put("loose.jsonl", "x")
    with pytest.raises(InputError, match=r"loose\.jsonl.*source's folder"):
        discover([tmp_path / "in"], None)


def test_the_same_name_twice_in_one_source(put: Put) -> None:
    """Two files that would have one name in one source stop with both paths."""
    paths = [put("a/in.jsonl", "x"), put("b/in.jsonl", "x")]
    with pytest.raises(InputError, match=r"a/in\.jsonl and .*b/in\.jsonl would both be 'in\.jsonl' of source 'in'"):
        discover(paths, None)
    with pytest.raises(InputError, match="of source 'mine'; rename one"):
        discover([path.parent for path in paths], "mine")
    assert names(discover([path.parent for path in paths], None)) == [("a", "in.jsonl"), ("b", "in.jsonl")]


# The digest


def test_the_digest_is_of_what_is_in_the_files(put: Put, tmp_path: Path) -> None:
    """Bytes, names and sources count; times, and where the folder lies, do not."""
    first = put("s/a.jsonl", "x")
    put("s/b.jsonl", "y")
    before = content(discover([tmp_path / "in"], None))
    os.utime(first, (0, 0))
    (tmp_path / "in").rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert content(discover([moved], None)) == before
    assert content(discover([moved / "s"], None)) == before
    digests = {before, content(discover([moved], "other"))}
    (moved / "s" / "b.jsonl").rename(moved / "s" / "c.jsonl")
    digests.add(content(discover([moved], None)))
    (moved / "s" / "c.jsonl").rename(moved / "s" / "b.jsonl")
    assert content(discover([moved], None)) == before
    (moved / "s" / "b.jsonl").write_text("z\n")
    digests.add(content(discover([moved], None)))
    (moved / "s" / "b.jsonl").unlink()
    digests.add(content(discover([moved], None)))
    assert len(digests) == 5


def test_bytes_do_not_move_between_files(put: Put, tmp_path: Path) -> None:
    """The same bytes cut into files elsewhere are other content."""
    digests = set()
    for first, second in (("ab", "c"), ("a", "bc"), ("abc", "")):
        for path, text in ((put("s/1.jsonl"), first), (put("s/2.jsonl"), second)):
            path.write_text(text)
            os.utime(path, (0, 0))
        digests.add(content(discover([tmp_path / "in"], None)))
    assert len(digests) == 3


def test_a_file_that_is_gone(put: Put) -> None:
    """A file that went away since it was found stops with its name."""
    path = put("a.jsonl", "x")
    files = discover([path], None)
    path.unlink()
    with pytest.raises(InputError, match=r"cannot read .*a\.jsonl: No such file"):
        content(files)
