"""Segments back to Progress per sequence.

Each segment counts up to its first torn or damaged frame; what lies behind that is reported, not used. An entry whose
offset leaves a gap (its predecessors were in a damaged part) is not used either: the sequence keeps its valid prefix
and is generated from there. So damage costs tokens, and never gives wrong ones.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tasks.core.errors import DamageError
from tasks.core.request import Progress
from tasks.journal.format import Entry, FailureEntry, FormatError, decode_frames, decode_header
from tasks.journal.writer import segments


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a segment stops being readable. A torn tail is what a kill leaves, and no loss of acknowledged tokens."""

    path: Path
    reason: str


@dataclass(slots=True)
class Replay:
    """Progress by sequence key, and what could not be read."""

    progress: dict[int, Progress] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(len(progress.token_ids) for progress in self.progress.values())

    @property
    def num_final_tokens(self) -> int:
        """Output tokens of sequences that have ended."""
        return sum(len(progress.token_ids) for progress in self.progress.values() if progress.is_final)

    @property
    def num_final(self) -> int:
        return sum(progress.is_final for progress in self.progress.values())


def replay_run(folder: Path, fingerprint: str) -> Replay:
    """All that a run's journals say; its fingerprint in hexadecimal. Raises DamageError as `replay` does."""
    return replay(segments(folder), bytes.fromhex(fingerprint))


def replay(paths: Iterable[Path], fingerprint: bytes) -> Replay:
    """Read segments in the order given. Raises DamageError when one belongs to another run or another version."""
    state = Replay()
    for path in paths:
        data = path.read_bytes()
        if not _header_matches(path, data, fingerprint, state):
            continue
        try:
            for entry in decode_frames(data):
                _apply(state.progress, entry)
        except FormatError as error:
            state.damages.append(Damage(path, str(error)))
    return state


def _header_matches(path: Path, data: bytes, fingerprint: bytes, state: Replay) -> bool:
    try:
        found = decode_header(data)
    except FormatError as error:
        state.damages.append(Damage(path, str(error)))
        return False
    if found != fingerprint:
        raise DamageError(f"{path}: the journal of another run ({found.hex()[:12]}); move it away and start again")
    return True


def _apply(progress: dict[int, Progress], entry: Entry | FailureEntry) -> None:
    if isinstance(entry, FailureEntry):
        progress.setdefault(entry.key, Progress()).error = entry.reason
        return
    known = progress.setdefault(entry.key, Progress())
    if entry.offset > len(known.token_ids):
        return
    if entry.offset < len(known.token_ids):
        known = progress[entry.key] = Progress(known.token_ids[: entry.offset])
    known.token_ids.extend(array("i", entry.token_ids))
    known.finish_reason = entry.finish_reason
    known.cached_tokens = entry.cached_tokens
