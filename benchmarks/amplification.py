"""Goal 11: work done for a run that is killed once a minute, against the same run undisturbed. Real vLLM, real kills.

Work is counted in tokens: those generated, from the journals of all lives, with the step in flight of each kill counted as
lost in full; and those prefilled, prompts and what resumes give back, the most that it can be, as if no prefix were cached.
A minute begins with a life's first new token, so engine starts are left out. The seconds of generation are compared as well.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.rig import command, record, result
from benchmarks.workloads import chats
from tasks.journal.decode import read_columns, read_frames
from tasks.journal.format import RESUME, decode_header
from tasks.journal.segments import segments
from tasks.storage.parquet import read_rows

NAME = "amplification"


def write_requests(path: Path, number: int, max_tokens: int) -> Path:
    """Greedy answers of exactly `max_tokens` to the samples' chats, each asked as a case of its own."""
    turns, rows = chats(), []
    for i in range(number):
        *before, last = turns[i % len(turns)]
        asked = [*before, {**last, "content": f"{last['content']} (case {i})"}]
        rows.append({"id": f"{i:04d}", "messages": asked, "max_tokens": max_tokens, "ignore_eos": True})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def start(requests: Path, home: Path) -> "subprocess.Popen[str]":
    roots = ["--data", str(home / "data"), "--checkpoints", str(home / "checkpoints")]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command("run", str(requests), "--max-model-len", "2048", *roots, "--json"),
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def journal_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("checkpoints/*/*.journal"))


def run_killed(requests: Path, home: Path, every_s: float) -> tuple[dict[str, Any], int]:
    """Lives of `every_s` seconds of generation each, until one completes; its outcome, and the number of kills."""
    kills = 0
    while True:
        process, size, deadline = start(requests, home), journal_bytes(home), None
        while process.poll() is None and (deadline is None or time.monotonic() < deadline):
            if deadline is None and journal_bytes(home) > size + 200:
                deadline = time.monotonic() + every_s
            time.sleep(0.05)
        if process.poll() is not None:
            outcome: dict[str, Any] = json.loads(process.communicate()[0])
            return outcome, kills
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kills += 1
        sys.stderr.write(f"kill {kills}\n")


def work_done(home: Path) -> tuple[int, int]:
    """Tokens generated, and tokens that a resume gave to the engine again with its prompt, over all lives."""
    (folder,) = home.glob("checkpoints/*")
    (plan,) = home.glob("data/runs/*/plan/*.parquet")
    prompts = {row["key"]: row["prompt_tokens"] for row in read_rows(plan, ["key", "prompt_tokens"])}
    generated = prefilled = 0
    for path in segments(folder):
        data = path.read_bytes()
        header = decode_header(data)
        columns = read_columns(data, read_frames(data, header.crc), header.epoch)
        generated += int(columns.lengths.sum())
        for row in range(len(columns.keys)):
            if columns.ends[row] == RESUME:
                prefilled += prompts[int(columns.keys[row])] + int(columns.offsets[row])
    return generated, prefilled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--every-s", type=float, default=60.0)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="amplification-"))
    requests = write_requests(home / "requests.jsonl", given.requests, given.max_tokens)
    undisturbed, _ = run_killed(requests, home / "undisturbed", 1e9)
    outcome, kills = run_killed(requests, home / "killed", given.every_s)
    generated, again = work_done(home / "killed")
    whole_s = undisturbed["output_tokens"] / undisturbed["tokens_per_s"]
    killed_s = kills * given.every_s + (outcome["output_tokens"] - outcome["resumed_tokens"]) / outcome["tokens_per_s"]
    needed, prompts = outcome["output_tokens"], outcome["engine_prompt_tokens"]
    lost = kills * 64  # the step in flight, at most
    detail = {"kills": kills, "needed": needed, "prompt_tokens": prompts, "again": again, "lost_at_most": lost}
    decode, total = (generated + lost) / needed, (generated + lost + prompts + again) / (needed + prompts)
    record(
        [
            result(NAME, "11", "tokens generated / needed", decode, "<= 1.03", decode <= 1.03, **detail),
            result(NAME, "11", "tokens generated and prefilled / needed", total, "<= 1.03", total <= 1.03, **detail),
            result(NAME, "11", "seconds of generation / undisturbed", killed_s / whole_s, "reported", True, whole_s=whole_s),
        ]
    )
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
