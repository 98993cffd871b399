"""Many segments into one, so that reading them again costs what their live tokens cost.

A journal that is read at each start would else grow with every step of every earlier start. The new segment is an epoch of
its own, put in place whole before the old ones go: a crash in between leaves both, and reading both gives the same. A
damaged segment is evidence and stays; then nothing is compacted.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from tasks.core.request import Progress, StepOutput
from tasks.journal.format import (
    ENTRY,
    HEADER,
    MAX_TOKENS_PER_ENTRY,
    FailureEntry,
    Framer,
    encode_failure,
    encode_header,
    encode_step,
)
from tasks.journal.replay import Replay
from tasks.journal.segments import next_epoch, segment_path, segments
from tasks.storage.atomic import remove_files, replacing_file

_MAX_RATIO = 3
_ENTRIES_PER_FRAME = 1024


def is_worth_it(known: Replay, compact_bytes: int) -> bool:
    """Whether the segments are that large, and hold so much more than their live tokens need."""
    needed = HEADER.size + ENTRY.size * len(known.progress) + 4 * known.num_tokens
    has_damage = any(not damage.is_torn_tail for damage in known.damages)
    return not has_damage and known.num_bytes > max(compact_bytes, _MAX_RATIO * needed)


def compact(folder: Path, engine: int, fingerprint: bytes, known: Replay) -> Path:
    """Write what is known of one engine's sequences as one segment and remove those that it stands for. Its path.

    The caller holds the engine's lock, and `known` is what its segments say now. Raises OSError and leaves all as it was.
    """
    old = segments(folder, engine)
    epoch = next_epoch(folder, engine)
    path = segment_path(folder, engine, epoch, 0)
    header = encode_header(fingerprint, epoch, 0, since=1)
    with replacing_file(path) as temporary, temporary.open("wb") as file:
        file.write(header)
        framer = Framer(header)
        file.writelines(framer.frame(payload) for payload in _payloads(known.progress))
        file.write(framer.seal())
    remove_files(old)
    return path


def _payloads(progress: Mapping[int, Progress]) -> Iterator[bytes]:
    waiting = iter(_entries(progress))
    while entries := list(islice(waiting, _ENTRIES_PER_FRAME)):
        yield encode_step([output for output, _ in entries], [offset for _, offset in entries])
    for key, known in progress.items():
        if known.error is not None:
            yield encode_failure(FailureEntry(key, known.error))


def _entries(progress: Mapping[int, Progress]) -> Iterable[tuple[StepOutput, int]]:
    """Each sequence in one entry, or in as many as its tokens need."""
    for key, known in progress.items():
        for start in range(0, max(len(known.token_ids), 1), MAX_TOKENS_PER_ENTRY):
            tokens = known.token_ids[start : start + MAX_TOKENS_PER_ENTRY]
            logprobs = known.logprobs[start : start + MAX_TOKENS_PER_ENTRY] if known.logprobs else None
            is_last = start + len(tokens) == len(known.token_ids)
            reason = known.finish_reason if is_last else None
            yield StepOutput(key, tokens, reason, known.cached_tokens, logprobs=logprobs), start
