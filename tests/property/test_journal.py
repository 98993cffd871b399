"""The journal against a model: any lives, any damage; every token that comes back stood at its place in one attempt."""

import os
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.request import FinishReason, Progress, StepOutput
from tasks.journal import replay as replay_module
from tasks.journal.compact import compact, is_worth_it
from tasks.journal.replay import Replay, replay
from tasks.journal.segments import segments
from tasks.journal.writer import TokenJournal

RUN = bytes(32)
KEYS = range(4)


@dataclass
class Model:
    """What a perfect journal would know, and all that it ever knew."""

    known: dict[int, Progress] = field(default_factory=dict)
    attempts: list[tuple[int, "array[int]"]] = field(default_factory=list)
    next_token: int = 0

    def live(self, folder: Path, rng: random.Random, num_steps: int) -> None:
        """One process: each sequence that has not ended goes on, begins anew, or stays away; then steps, then the end."""
        with TokenJournal(folder, 0, RUN, segment_bytes=4096) as journal:
            running = [key for key in KEYS if not self.known.get(key, Progress()).is_final and rng.random() < 0.8]
            for key in running:
                saved = self.known.get(key, Progress()).token_ids
                saved = saved if rng.random() < 0.7 else array("i")
                journal.begin(key, saved)
                self.attempts.append((key, array("i", saved)))
            mine = {key: self.attempts[-len(running) + i][1] for i, key in enumerate(running)}
            for _ in range(num_steps):
                self._step(journal, rng, mine)

    def _step(self, journal: TokenJournal, rng: random.Random, mine: dict[int, "array[int]"]) -> None:
        outputs = []
        for key in [key for key in mine if rng.random() < 0.8]:
            tokens = [self.next_token + i for i in range(rng.randint(1, 3))]
            self.next_token += len(tokens)
            mine[key].extend(tokens)
            reason = FinishReason.STOP if rng.random() < 0.05 else None
            outputs.append(StepOutput(key, tokens, reason, 5 if reason else 0))
            self.known[key] = Progress(array("i", mine[key]), reason, None, 5 if reason else 0)
            if reason:
                del mine[key]
        journal.append(outputs)

    def allows(self, key: int, tokens: "array[int]") -> bool:
        return any(tokens == made[: len(tokens)] for of, made in self.attempts if of == key)


def lives(folder: Path, seed: int) -> Model:
    rng, model = random.Random(seed), Model()
    for _ in range(rng.randint(1, 4)):
        model.live(folder, rng, rng.randint(0, 25))
    return model


def replayed(folder: Path) -> Replay:
    return replay(segments(folder), RUN)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields the same parent; each example makes a folder of its own in it."""
    yield tmp_path_factory.mktemp("journals")


def new_folder(parent: Path) -> Path:
    path = parent / os.urandom(8).hex()
    path.mkdir()
    return path


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_replay_equals_the_model(folders: Path, seed: int) -> None:
    """Over any number of process lives, replay knows each sequence's last tokens, reason and cached tokens."""
    folder = new_folder(folders)
    model = lives(folder, seed)
    assert replayed(folder).progress == model.known


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_damaged_journals_never_give_wrong_tokens(folders: Path, seed: int) -> None:
    """Whatever is flipped, cut, zeroed, lost, copied or exchanged: what comes back is the beginning of a real attempt, and
    each loss is reported or is a missing file."""
    folder, rng = new_folder(folders), random.Random(seed)
    model = lives(folder, seed)
    for _ in range(rng.randint(1, 4)):
        damage(rng.choice(segments(folder) or [folder / "none"]), rng)
    for key, known in replayed(folder).progress.items():
        assert model.allows(key, known.token_ids)
        if known.finish_reason is not None:
            assert known == model.known[key]


def damage(path: Path, rng: random.Random) -> None:
    if not path.exists() or not path.stat().st_size:
        return
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    match rng.choice(["flip", "cut", "zero", "lose", "garbage", "copy"]):
        case "flip":
            data[place] ^= 1 << rng.randrange(8)
        case "cut":
            del data[place:]
        case "zero":
            data[place : place + 512] = bytes(len(data[place : place + 512]))
        case "lose":
            path.unlink()
            return
        case "garbage":
            data += rng.randbytes(rng.randint(1, 64))
        case "copy":
            data[place:place] = data[56 : 56 + 8 * rng.randint(1, 20)]
    path.write_bytes(bytes(data))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), is_damaged=st.booleans())
def test_reading_in_bulk_equals_reading_by_entry(folders: Path, seed: int, is_damaged: bool) -> None:
    """The fast way and the rules of the grammar agree on every journal, whole or damaged."""
    folder, rng = new_folder(folders), random.Random(seed)
    lives(folder, seed)
    if is_damaged:
        damage(rng.choice(segments(folder)), rng)
    quick = replayed(folder).progress
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module._Chains, "in_bulk", lambda self, group: None)
        assert replayed(folder).progress == quick


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_compaction_changes_nothing_that_is_known(folders: Path, seed: int) -> None:
    """After compaction, and while both the old and the new segments are there, replay knows the same, and lives go on."""
    folder = new_folder(folders)
    model = lives(folder, seed)
    with TokenJournal(folder, 0, RUN) as journal:
        journal.fail(77, "poison")
    before, old = replayed(folder), {path: path.read_bytes() for path in segments(folder)}
    path = compact(folder, 0, RUN, before)
    assert segments(folder) == [path]
    assert replayed(folder).progress == before.progress
    rng = random.Random(seed)
    for num_left in {len(old), rng.randint(0, len(old))}:  # a death before the old ones were removed, or in between
        for file, data in list(old.items())[len(old) - num_left :]:
            file.write_bytes(data)
        assert replayed(folder).progress == before.progress
    model.live(folder, random.Random(seed), 5)
    assert {key: known for key, known in replayed(folder).progress.items() if key != 77} == model.known


def test_compaction_makes_the_journal_as_small_as_its_tokens(tmp_path: Path) -> None:
    """A journal of single-token steps is worth compacting, and then is not; a damaged one is left alone."""
    with TokenJournal(tmp_path, 0, RUN) as journal:
        for key in range(100):
            journal.begin(key)
        for token in range(700):
            journal.append([StepOutput(key, (token,)) for key in range(100)])
    known = replayed(tmp_path)
    assert is_worth_it(known, 1 << 20)
    assert not is_worth_it(known, 32 << 20)
    compact(tmp_path, 0, RUN, known)
    after = replayed(tmp_path)
    assert after.progress == known.progress
    assert after.num_bytes < known.num_bytes / 4
    assert not is_worth_it(after, 1 << 20)
    known.damages.append(replay_module.Damage(tmp_path, "a flipped bit"))
    assert not is_worth_it(known, 1 << 20)
