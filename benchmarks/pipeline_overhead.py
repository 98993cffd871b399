"""Goal 1: engine ready to last row durable in Parquet, journal on, against bare `LLM.generate` and one Parquet write.

The same engine, requests and order; both in turn within one process, the prefix cache emptied before each. What is timed of
ours is all that a run does from there on: reading the plan, the loop, the journal with its syncs, the replay, collecting.
With --prefect the command line and the nightly flow under Prefect run in turn as processes instead, and what is timed is
the same stretch, from the journal's first byte to the results' place in the file system.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engine import MODEL, make_sequences, open_engine
from benchmarks.rig import REPOSITORY, Result, command, interval, record, result
from tasks.collect.collect import collect
from tasks.core.plan import PlannedSequence
from tasks.engine.child import Reporter, WatchedEngine
from tasks.engine.models import resolve_model
from tasks.engine.tokenizer import ModelTokenizer
from tasks.engine.vllm import VLLMEngine
from tasks.generate.loop import generate
from tasks.generate.resume import remaining
from tasks.journal.replay import replay_run
from tasks.journal.writer import TokenJournal
from tasks.storage.layout import Run
from tasks.storage.parquet import PLAN, read_rows, write_table
from tasks.storage.prompts import LABELS, Prompts, prompt_writer
from tasks.worker import read_plan

NAME = "pipeline_overhead"
_RUN = bytes(32)


def bare(engine: VLLMEngine, sequences: list[PlannedSequence], folder: Path) -> int:
    """What a script of twenty lines does; the number of output tokens."""
    from vllm import SamplingParams as VLLMParams
    from vllm import TokensPrompt

    prompts = [TokensPrompt(prompt_token_ids=list(sequence.prompt_token_ids)) for sequence in sequences]
    params = VLLMParams(max_tokens=sequences[0].sampling.max_tokens, temperature=0.0, ignore_eos=True)
    assert engine._llm is not None
    outputs = engine._llm.generate(prompts, params, use_tqdm=False)
    rows = [
        {"request_id": sequence.request_id, "text": output.outputs[0].text, "token_ids": list(output.outputs[0].token_ids)}
        for sequence, output in zip(sequences, outputs, strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "results.parquet", compression="zstd")
    return sum(len(row["token_ids"]) for row in rows)


def ours(engine: VLLMEngine, run: Run, requests: list[dict[str, Any]], tokenizer: ModelTokenizer) -> int:
    """What a run does once its engine is ready; the number of output tokens."""
    with open(os.devnull, "wb") as listener, TokenJournal(run.journals, 0, _RUN, sync_interval_s=1.0) as journal:
        report = Reporter(listener.fileno())
        work = remaining(read_plan(run), {}, engine.continues_exactly)
        generate(
            work,
            WatchedEngine(engine, report),
            journal,
            max_num_seqs=engine.max_num_seqs,
            should_stop=lambda: False,
            on_step=lambda tally: report({"phase": "running", **asdict(tally)}),
        )
    known = replay_run(run.journals, _RUN.hex())
    rows: dict[str, list[Any]] = {}
    for row in read_rows(run.plan, [name for name in PLAN.names if name != "prompt"]):
        rows.setdefault(row["request_id"], []).append(row)
    return collect(requests, rows, {}, {}, known.progress, tokenizer, run, MODEL).output_tokens


def write_plan(run: Run, sequences: list[PlannedSequence]) -> list[dict[str, Any]]:
    """The plan as the planner would have written it; the rows of the requests table."""
    rows = [
        {
            "position": i,
            "key": sequence.key,
            "request_id": sequence.request_id,
            "choice_index": 0,
            "batch_id": 0,
            "source": "s",
            "group_id": "g",
            "bucket": 256,
            "max_tokens": sequence.sampling.max_tokens,
            "predicted_tokens": None,
            "prompt_tokens": len(sequence.prompt_token_ids),
            "sampling": sequence.sampling.to_json(),
            "prompt": i,
        }
        for i, sequence in enumerate(sequences)
    ]
    write_table(run.plan.parent, PLAN, rows)
    tokens = np.array([token for sequence in sequences for token in sequence.prompt_token_ids], np.int32)
    offsets = np.cumsum([0, *(len(sequence.prompt_token_ids) for sequence in sequences)])
    labels = [{"request_id": row["request_id"], "sampling": row["sampling"], "n": 1} for row in rows]
    run.prompts.parent.mkdir(parents=True)
    with prompt_writer(run.prompts) as writer:
        writer.append(Prompts(tokens, offsets, pa.RecordBatch.from_pylist(labels, schema=LABELS)))
    return [
        {"request_id": row["request_id"], "custom_id": row["request_id"], "source": "s", "file": "f", "line": 1, "n": 1}
        for row in rows
    ]


def in_process(num_pairs: int, num_requests: int, max_tokens: int) -> Result:
    engine, tokenizer = open_engine(64), ModelTokenizer(resolve_model(MODEL).path, 2048)
    ratios, peers = [], []
    for pair in range(num_pairs + 1):
        times = {}
        for which in ("bare", "ours") if pair % 2 else ("ours", "bare"):
            sequences = make_sequences(num_requests, max_tokens, seed=pair)
            with tempfile.TemporaryDirectory() as folder:
                run = Run("run", Path(folder) / "home", Path(folder) / "journals")
                requests = write_plan(run, sequences)
                assert engine._llm is not None
                engine._llm.reset_prefix_cache()
                began = time.perf_counter()
                made = bare(engine, sequences, Path(folder)) if which == "bare" else ours(engine, run, requests, tokenizer)
                times[which] = time.perf_counter() - began
                assert made == num_requests * max_tokens
        if pair:  # the first warms up
            ratios.append(times["ours"] / times["bare"])
            peers.append(times["bare"])
            sys.stderr.write(f"pair {pair}: {times['ours']:.2f} s / {times['bare']:.2f} s\n")
    found, spread = interval(ratios), max(peers) / min(peers) - 1
    detail = {"pairs": num_pairs, "requests": num_requests, "max_tokens": max_tokens, "bare_s": interval(peers).median}
    detail |= {"spread_of_bare": spread}
    measure = "ours / LLM.generate + one Parquet write"
    return result(NAME, "1", measure, found, "<= 1.01", found.high <= 1.01, **detail)


_FLOW = """
import sys
from prefect.testing.utilities import prefect_test_harness
from flows.nightly import nightly
if __name__ == "__main__":
    with prefect_test_harness(server_startup_timeout=120):
        nightly(inbox=sys.argv[1], data=sys.argv[2], checkpoints=sys.argv[3])
"""


def stretch(arguments: list[str], home: Path) -> float:
    """Seconds from the first byte of the journal to the results' appearance."""
    process = subprocess.Popen(arguments, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = ended = 0.0
    while process.poll() is None or not ended:
        if not began and any(home.glob("checkpoints/*/*.journal")):
            began = time.monotonic()
        if not ended and any(home.glob("data/runs/*/results")):
            ended = time.monotonic()
        time.sleep(0.002 if began else 0.02)
        if process.poll() is not None and not ended:
            raise SystemExit(f"ended with {process.returncode} and no results")
    process.wait()
    return ended - began


def under_prefect(num_pairs: int, num_requests: int, max_tokens: int) -> Result:
    ratios, peers = [], []
    for pair in range(num_pairs):
        times = {}
        for which in ("plain", "prefect") if pair % 2 else ("prefect", "plain"):
            with tempfile.TemporaryDirectory() as folder:
                home = Path(folder)
                inbox = home / "inbox" / "source"
                inbox.mkdir(parents=True)
                same = {"max_tokens": max_tokens, "ignore_eos": True}
                rows = [{"prompt": f"Write about the number {i}.", **same} for i in range(num_requests)]
                (inbox / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
                places = [str(home / "inbox"), str(home / "data"), str(home / "checkpoints")]
                plain = command("nightly", "--inbox", places[0], "--data", places[1], "--checkpoints", places[2])
                times[which] = stretch(plain if which == "plain" else [sys.executable, "-c", _FLOW, *places], home)
        ratios.append(times["prefect"] / times["plain"])
        peers.append(times["plain"])
        sys.stderr.write(f"pair {pair}: {times['prefect']:.2f} s / {times['plain']:.2f} s\n")
    found = interval(ratios)
    detail = {"pairs": num_pairs, "requests": num_requests, "plain_s": interval(peers).median}
    detail["spread_of_plain"] = max(peers) / min(peers) - 1
    measure = "nightly flow under Prefect / without"
    return result(NAME, "1", measure, found, "<= 1.02", found.high <= 1.02, **detail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prefect", action="store_true")
    given = parser.parse_args()
    measure = under_prefect if given.prefect else in_process
    record([measure(given.pairs, given.requests, given.max_tokens)])


if __name__ == "__main__":
    main()
