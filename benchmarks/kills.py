"""Goals 9 and 12: SIGKILL of the whole process group at random instants of a run of mixed sampling, with real vLLM.

Each life is the real command in a process group of its own. After each kill the journal is read: no token that was in it
at an earlier kill may be gone or changed. When all kills are done the run is completed, and its answers are compared with
those of a run that nobody killed, and of one in another order (A/A).
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rig import command, record, result
from benchmarks.workloads import write_mixed
from tasks.core.request import Progress
from tasks.journal.replay import replay_run
from tasks.storage.parquet import read_rows

NAME = "kills"
_COMPARED = ("custom_id", "choice_index", "output_token_ids", "output_text", "finish_reason", "stop_reason", "is_valid_json")


@dataclass
class Rig:
    """One run's folders and settings."""

    home: Path
    requests: Path
    dtype: str
    max_num_seqs: int
    before: dict[int, Progress] = field(default_factory=dict)
    lost: int = 0
    changed: int = 0
    unfinished: list[int] = field(default_factory=list)
    """At each kill: tokens of answers that had not ended, which a checkpoint by rows would lose."""

    def start(self) -> "subprocess.Popen[str]":
        arguments = ["--dtype", self.dtype, "--max-model-len", "2048", "--max-num-seqs", str(self.max_num_seqs)]
        roots = ["--data", str(self.home / "data"), "--checkpoints", str(self.home / "checkpoints")]
        return subprocess.Popen(
            command("run", str(self.requests), *arguments, *roots, "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def complete(self) -> dict[str, Any]:
        out, _ = self.start().communicate()
        outcome: dict[str, Any] = json.loads(out)
        return outcome

    def journal_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.home.glob("checkpoints/*/*.journal"))

    def read(self) -> int:
        """Compare the journal with what it was at the last kill; the number of its tokens."""
        manifests = list(self.home.glob("data/runs/*/manifest.json"))
        if not manifests:
            return 0
        manifest = json.loads(manifests[0].read_text())
        known = replay_run(self.home / "checkpoints" / manifest["run_id"], manifest["fingerprint"])
        for key, earlier in self.before.items():
            now = known.progress.get(key, Progress())
            self.lost += max(len(earlier.token_ids) - len(now.token_ids), 0)
            self.changed += now.token_ids[: len(earlier.token_ids)] != earlier.token_ids[: len(now.token_ids)]
        self.before = {key: Progress(array("i", now.token_ids)) for key, now in known.progress.items()}
        self.unfinished.append(known.num_tokens - known.num_final_tokens)
        return known.num_tokens

    def answers(self) -> dict[tuple[str, int], dict[str, Any]]:
        (folder,) = self.home.glob("data/runs/*/results")
        rows = list(read_rows(sorted(folder.glob("*.parquet"))))
        found = {(row["custom_id"], row["choice_index"]): {name: row[name] for name in _COMPARED} for row in rows}
        assert len(found) == len(rows), "a row is there twice"
        return found


def kill_once(rig: Rig, rng: random.Random, max_start_s: float, max_run_s: float) -> str:
    """One life and its end; in which phase that was."""
    process, began = rig.start(), time.monotonic()
    size = rig.journal_bytes()
    in_start = rng.random() < 0.2
    deadline = began + rng.uniform(0, max_start_s) if in_start else None
    phase = "start"
    while process.poll() is None:
        if deadline is not None and time.monotonic() >= deadline:
            break
        if deadline is None and rig.journal_bytes() > size + 200:
            phase, deadline = "generation", time.monotonic() + rng.uniform(0, max_run_s)
        time.sleep(0.005)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        phase = "after the end"
    process.communicate()
    return phase


def share_equal(one: dict[Any, Any], other: dict[Any, Any]) -> float:
    return float(sum(one.get(key) == other[key] for key in other) / len(other))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--max-num-seqs", type=int, default=16)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-start-s", type=float, default=14.0, help="Latest kill within the start of a life.")
    parser.add_argument("--max-run-s", type=float, default=0.5, help="Latest kill after a life's first new token.")
    given = parser.parse_args()
    rng, home = random.Random(given.seed), Path(tempfile.mkdtemp(prefix="kills-"))
    requests = write_mixed(home / "requests.jsonl", given.requests, given.max_tokens)
    undisturbed = Rig(home / "undisturbed", requests, given.dtype, given.max_num_seqs)
    whole = undisturbed.complete()
    expected = undisturbed.answers()
    rig, phases, began = Rig(home / "killed", requests, given.dtype, given.max_num_seqs), dict[str, int](), time.monotonic()
    for number in range(given.kills):
        phase = kill_once(rig, rng, given.max_start_s, given.max_run_s)
        phases[phase] = phases.get(phase, 0) + 1
        sys.stderr.write(f"kill {number + 1}: in {phase}; {rig.read()} tokens, {time.monotonic() - began:.0f} s\n")
    outcome = rig.complete()
    rig.read()
    found = rig.answers()
    rows = abs(len(found) - len(expected)) + len(expected.keys() - found.keys()) + int(outcome["failures"])
    detail = {"kills": given.kills, "phases": phases, "requests": given.requests, "dtype": given.dtype}
    detail |= {"output_tokens": whole["output_tokens"], "kept_at_the_end": outcome["resumed_tokens"]}
    detail["tokens_a_row_checkpoint_would_lose_a_kill"] = float(np.mean(rig.unfinished))
    equal, is_exact = share_equal(found, expected), given.dtype == "float32"
    if not is_exact:
        other = Rig(home / "again", requests, given.dtype, given.max_num_seqs // 2)
        other.complete()
        detail["equal_between_two_batch_sizes"] = share_equal(other.answers(), expected)
    gone, is_right = rig.lost + rig.changed, equal == 1 or not is_exact
    results = [
        result(NAME, "9", "acknowledged tokens lost or changed", gone, "0", gone == 0, **detail),
        result(NAME, "9", "rows missing, doubled or failed", rows, "0", rows == 0, **detail),
        result(NAME, "12", "share of equal answers", equal, "1" if is_exact else "reported", is_right, **detail),
    ]
    if equal < 1:
        differing = sorted(key for key in expected if found[key] != expected[key])
        sys.stderr.write(f"differ: {differing[:10]}\n")
    record(results)
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
