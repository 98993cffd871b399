"""Segments back to Progress per sequence.

Keys whose entries form one unbroken chain, which is nearly all of them, are read in bulk; to the others (chains that begin
again, gaps where a frame is damaged, failures) the rules of the grammar are applied entry by entry. Damage costs tokens, and
never gives wrong ones: what is outside a chain is left out, and its sequence is generated from what is left.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.core.errors import DamageError
from tasks.core.request import Progress
from tasks.journal.decode import Columns, Ints, read_columns, read_frames, spans
from tasks.journal.format import FINISHES, RESUME, FailureEntry, FormatError, Header, crc_of, decode_header
from tasks.journal.segments import Place, missing, place_of, segments

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a segment is not readable, and why. A torn tail is what a kill leaves, and no loss of acknowledged tokens."""

    path: Path
    reason: str
    is_torn_tail: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(slots=True)
class Replay:
    """Progress by sequence key, and what could not be read. `num_bytes` is the size of all segments, `num_entries` what
    they hold."""

    progress: dict[int, Progress] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    num_bytes: int = 0
    num_entries: int = 0
    num_broken: int = 0
    """Sequences whose last entries are outside any chain."""

    @property
    def num_tokens(self) -> int:
        return sum(len(progress.token_ids) for progress in self.progress.values())

    @property
    def num_final_tokens(self) -> int:
        """Output tokens of sequences that have ended."""
        return sum(len(progress.token_ids) for progress in self.progress.values() if progress.is_final)

    @property
    def ended(self) -> list[int]:
        """Keys of the sequences that have ended."""
        return [key for key, progress in self.progress.items() if progress.is_final]

    @property
    def num_final(self) -> int:
        return len(self.ended)


def replay_run(folder: Path, fingerprint: str) -> Replay:
    """All that a run's journals say; its fingerprint in hexadecimal. Raises DamageError as `replay` does."""
    for _ in range(_ATTEMPTS):
        try:
            return replay(segments(folder), bytes.fromhex(fingerprint))
        except FileNotFoundError:  # the run is alive and has just put several segments into one
            continue
    return replay(segments(folder), bytes.fromhex(fingerprint))


def replay(paths: Iterable[Path], fingerprint: bytes) -> Replay:
    """Read segments in the order given. Raises DamageError when one belongs to another run."""
    state, parts, places = Replay(), [], []
    for path in paths:
        data, place = path.read_bytes(), place_of(path)
        state.num_bytes += len(data)
        header = _header(path, place, data, fingerprint, state)
        places.append(place if header is None else place._replace(since=header.since))
        if header is not None:
            frames = read_frames(data, header.crc)
            parts.append(read_columns(data, frames, header.epoch))
            state.damages += [Damage(path, str(fault), fault.is_torn_tail) for fault in frames.faults]
    if parts:
        _assemble(Columns.joined(parts), state)
    state.damages += [Damage(path.parent, gap) for gap in missing(places)]
    if state.num_broken:
        words = f"{state.num_broken:,} sequences go on from tokens that are not there; what is there before them is kept"
        state.damages.append(Damage(path.parent, words))
    return state


def _header(path: Path, place: Place, data: bytes, fingerprint: bytes, state: Replay) -> Header | None:
    try:
        header = decode_header(data)
    except FormatError as error:
        is_torn_tail = not any(data) or error.args[0].endswith("is cut off")
        state.damages.append(Damage(path, str(error), is_torn_tail))
        return None
    if (header.epoch, header.part) != (place.epoch, place.part):
        words = f"a copy of epoch {header.epoch} part {header.part} under another name; not read"
        state.damages.append(Damage(path, words))
        return None
    if header.fingerprint != fingerprint:
        other = header.fingerprint.hex()[:12]
        raise DamageError(f"{path}: the journal of another run ({other}); move it away and start again")
    return header


def _assemble(columns: Columns, state: Replay) -> None:
    state.num_entries = len(columns.keys)
    order = np.argsort(columns.keys, kind="stable")
    keys = columns.keys[order]
    changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    firsts = np.concatenate([[0], changes]) if len(keys) else changes
    lasts = np.concatenate([changes, [len(keys)]]) if len(keys) else changes
    chains = _Chains(columns, order, firsts, lasts)
    failures: dict[int, list[tuple[int, FailureEntry]]] = {}
    for row, entry in columns.failures:
        failures.setdefault(entry.key, []).append((row, entry))
    for group, key in enumerate(keys[firsts].tolist()):
        known = None if key in failures else chains.in_bulk(group)
        if known is None:
            known, is_broken = chains.by_entry(group, failures.pop(key, ()))
            state.num_broken += is_broken and not known.is_final
        state.progress[key] = known
    for key, given_up in failures.items():
        state.progress[key] = Progress(error=given_up[-1][1].reason)


class _Chains:
    """The entries sorted by key, in order of writing within each; a group is one key's."""

    def __init__(self, columns: Columns, order: Ints, firsts: Ints, lasts: Ints) -> None:
        self._columns, self._order = columns, order
        self._firsts, self._lasts = firsts.tolist(), lasts.tolist()
        lengths = columns.lengths[order]
        starts = np.cumsum(columns.lengths) - columns.lengths
        self._tokens = columns.token_ids[spans(starts[order], lengths)].tobytes()
        self._bounds = 4 * np.concatenate([[0], np.cumsum(lengths)])
        self._first_bytes, self._last_bytes = self._bounds[firsts].tolist(), self._bounds[lasts].tolist()
        ends = order[lasts - 1]
        self._codes, self._extra = columns.ends[ends].tolist(), columns.extra[ends].tolist()
        self._is_unbroken = _unbroken(columns, order, firsts, lasts).tolist()
        resumes = np.concatenate([[0], np.cumsum(columns.ends[order] == RESUME)])
        self._num_resumes = (resumes[lasts] - resumes[firsts]).tolist()

    def in_bulk(self, group: int) -> Progress | None:
        """Progress of a key whose entries are one chain over all epochs; None when they are not."""
        if not self._is_unbroken[group]:
            return None
        tokens = array("i", self._tokens[self._first_bytes[group] : self._last_bytes[group]])
        if self._num_resumes[group] and not self._resumes_hold(group, tokens):
            return None
        known, code = Progress(tokens), self._codes[group]
        if 0 < code < RESUME:
            known.finish_reason, known.cached_tokens = FINISHES[code], self._extra[group]
        if logprobs := self._columns.logprobs:
            known.logprobs = [at for row in self._rows(group) for at in logprobs.get(row, ())]
        return known

    def _rows(self, group: int) -> list[int]:
        found: list[int] = self._order[self._firsts[group] : self._lasts[group]].tolist()
        return found

    def _resumes_hold(self, group: int, tokens: "array[int]") -> bool:
        rows = [row for row in self._rows(group) if self._columns.ends[row] == RESUME]
        return all(crc_of(tokens[: int(self._columns.offsets[row])]) == int(self._columns.extra[row]) for row in rows)

    def by_entry(self, group: int, failures: Iterable[tuple[int, FailureEntry]]) -> tuple[Progress, bool]:
        """Progress of any key, by the rules of the grammar, and whether its last entry is outside any chain."""
        known, chain = Progress(), -1
        waiting = list(failures)
        for place, row in enumerate(self._rows(group), self._firsts[group]):
            while waiting and waiting[0][0] <= row:
                known.error = waiting.pop(0)[1].reason
            tokens = array("i", self._tokens[self._bounds[place] : self._bounds[place + 1]])
            known, chain = self._apply(row, tokens, known, chain)
        for _, failure in waiting:
            known.error = failure.reason
        return known, chain < 0

    def _apply(self, row: int, tokens: "array[int]", known: Progress, chain: int) -> tuple[Progress, int]:
        """One entry; `chain` is the epoch in which the key's chain holds, or -1."""
        columns = self._columns
        offset, end, epoch = int(columns.offsets[row]), int(columns.ends[row]), int(columns.epochs[row])
        if end == RESUME:
            saved = known.token_ids[:offset]
            if len(saved) < offset or crc_of(saved) != int(columns.extra[row]):
                return known, -1
            return Progress(saved, logprobs=known.logprobs[:offset]), epoch
        if offset == 0:
            known = Progress()
        elif chain != epoch or offset != len(known.token_ids):
            return known, -1
        known.token_ids.extend(tokens)
        known.logprobs.extend(columns.logprobs.get(row, ()))
        if end:
            known.finish_reason, known.cached_tokens = FINISHES[end], int(columns.extra[row])
        return known, epoch


def _unbroken(columns: Columns, order: Ints, firsts: Ints, lasts: Ints) -> NDArray[np.bool_]:
    """For each group, whether it begins at 0, and each entry where the one before it ended, a new epoch with a resume."""
    offsets, lengths, ends = columns.offsets[order], columns.lengths[order], columns.ends[order]
    epochs = columns.epochs[order]
    holds = np.zeros(len(order), dtype=np.bool_)
    follows = offsets[1:] == offsets[:-1] + lengths[:-1]
    same = (epochs[1:] == epochs[:-1]) | (ends[1:] == RESUME)
    holds[1:] = follows & same & ((ends[:-1] == 0) | (ends[:-1] == RESUME))
    holds[firsts] = (offsets[firsts] == 0) & (ends[firsts] != RESUME)
    sums = np.concatenate([[0], np.cumsum(holds)])
    return np.asarray(sums[lasts] - sums[firsts] == lasts - firsts)
