"""Goals 15 and 16: does meaning pay? Encoders, output lengths, drafts and experts, beside their nulls.

Speed needs nothing (`--parts speed`); quality needs the folder of public data (`--corpus`, see benchmarks.nights); lengths,
drafts and experts need finished nights of one model (`--data`, a data folder in which they were run).
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from benchmarks import drafts, experts
from benchmarks.encoders import csr, measure_merging, measure_quality, measure_speed
from benchmarks.engine import MODEL
from benchmarks.rig import Interval, Result, record, result
from tasks.engine.models import resolve_model
from tasks.group.clusters import split
from tasks.group.lengths import History, LengthModel, centred
from tasks.group.static import open_static_encoder

NAME = "semantics"
_GROUP = 48
_SEQUENCES = 192
_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Night:
    """One finished run, a row an answer."""

    sources: NDArray[np.str_]
    prompts: list[list[int]]
    answers: list[list[int]]
    was_cut: NDArray[np.bool_]
    max_tokens: NDArray[np.int32]

    @property
    def lengths(self) -> NDArray[np.int32]:
        return np.array([len(answer) for answer in self.answers], dtype=np.int32)

    @property
    def prompt_tokens(self) -> NDArray[np.int32]:
        return np.array([len(prompt) for prompt in self.prompts], dtype=np.int32)


def read_nights(data: Path) -> list[Night]:
    """The finished runs of a data folder, oldest first."""
    manifests = [json.loads(path.read_text()) for path in data.glob("runs/*/manifest.json")]
    done = sorted((of for of in manifests if of["state"] == "done"), key=lambda of: of["ended_at"])
    return [_read_night(data, of) for of in done]


def _read_night(data: Path, manifest: dict[str, str]) -> Night:
    dataset = json.loads((data / "requests/_datasets" / f"{manifest['dataset_id']}.json").read_text())
    rows = duckdb.execute(
        "select r.source, q.prompt_token_ids, r.output_token_ids, r.finish_reason = 'length', q.max_tokens "
        "from read_parquet(?) r join read_parquet(?) q using (request_id) "
        "where r.duplicate_of is null order by request_id",
        [str(data / "runs" / manifest["run_id"] / "results/*.parquet"), dataset["request_parts"]],
    ).fetchall()
    sources, prompts, answers, was_cut, max_tokens = zip(*rows, strict=True)
    return Night(np.array(sources), list(prompts), list(answers), np.array(was_cut), np.array(max_tokens, np.int32))


def joined(nights: Sequence[Night]) -> Night:
    """Several nights as one."""
    arrays = [np.concatenate([getattr(of, name) for of in nights]) for name in ("sources", "was_cut", "max_tokens")]
    prompts, answers = ([row for of in nights for row in getattr(of, name)] for name in ("prompts", "answers"))
    return Night(arrays[0], prompts, answers, arrays[1], arrays[2])


def measure_lengths(nights: Sequence[Night], as_one_source: bool) -> list[Result]:
    """Each night predicted from the others; the ratio of the mean errors over all rows."""
    found: dict[str, list[NDArray[np.float64]]] = {"ours": [], "global": [], "source": [], "without vectors": []}
    divided: list[str] = []
    for left_out in nights:
        seen = joined([night for night in nights if night is not left_out])
        names = {"all"} if as_one_source else set(seen.sources)
        predicted, cells = _predict(seen, left_out, as_one_source, with_vectors=True)
        plain, _ = _predict(seen, left_out, as_one_source, with_vectors=False)
        medians = {name: np.median(seen.lengths[(seen.sources == name) | as_one_source]) for name in names}
        of_source = np.array([medians["all" if as_one_source else name] for name in left_out.sources])
        whole = np.full(len(of_source), np.median(seen.lengths))
        for name, values in (("ours", predicted), ("global", whole), ("source", of_source), ("without vectors", plain)):
            found[name].append(np.abs(values - left_out.lengths).astype(np.float64))
        divided += cells
    errors = {name: np.concatenate(parts) for name, parts in found.items()}
    detail: dict[str, Any] = {f"MAE {name}": float(of.mean()) for name, of in errors.items()}
    detail |= {
        "rows": len(errors["ours"]),
        "divided by": " ".join(f"{kind}:{divided.count(kind)}" for kind in sorted(set(divided))),
    }
    kind = "one mixed source" if as_one_source else "seven sources"
    results = []
    for null in ("global", "source"):
        ratio = _ratio(errors["ours"], errors[null])
        measure = f"{kind}: error of predicted length / {null} median"
        results.append(result(NAME, "16a", measure, ratio, "<= 0.7", ratio.high <= 0.7, **detail))
    return results


def _predict(seen: Night, new: Night, as_one_source: bool, *, with_vectors: bool) -> tuple[NDArray[np.int32], list[str]]:
    names = ["all"] if as_one_source else sorted(set(new.sources.tolist()))
    of_seen = np.full(len(seen.sources), "all") if as_one_source else seen.sources
    ids = np.zeros(len(new.sources), np.int32) if as_one_source else np.searchsorted(names, new.sources).astype(np.int32)
    vectors: list[NDArray[np.float32] | None] = [None, None]
    if with_vectors:
        encoder = open_static_encoder(resolve_model(MODEL).path, 0)
        encoder.fit(*csr(seen.prompts))
        vectors = [encoder.embed_tokens(*csr(of.prompts)) for of in (seen, new)]
    model = LengthModel.fit(History(of_seen, seen.prompt_tokens, seen.lengths, seen.was_cut, vectors[0]))
    predicted = model.predict(names, ids, new.prompt_tokens, new.max_tokens, vectors[1])
    return predicted, list(model.divided_by.values())


def _ratio(ours: NDArray[np.float64], null: NDArray[np.float64]) -> Interval:
    """Of the means, with a bootstrap over rows."""
    rows = np.random.default_rng(0).integers(0, len(ours), (_DRAWS, len(ours)))
    low, high = np.quantile(ours[rows].mean(axis=1) / null[rows].mean(axis=1), [0.025, 0.975])
    return Interval(float(ours.mean() / null.mean()), float(low), float(high))


def groupings(night: Night) -> dict[str, list[NDArray[np.intp]]]:
    """The rows in groups of about one size: shuffled, by source, and by meaning within the source."""
    rng, rows = np.random.default_rng(0), np.arange(len(night.sources))
    encoder, flat = open_static_encoder(resolve_model(MODEL).path, 0), csr(night.prompts)
    encoder.fit(*flat)
    vectors = encoder.embed_tokens(*flat)
    by_source, by_meaning = [], []
    for source in np.unique(night.sources):
        of = rng.permutation(np.flatnonzero(night.sources == source))
        by_source += np.array_split(of, -(-len(of) // _GROUP))
        labels = split(centred(vectors[of], vectors[of].mean(axis=0)), _GROUP).labels
        by_meaning += [of[labels == label] for label in range(labels.max() + 1)]
    shuffled = np.array_split(rng.permutation(rows), len(by_meaning))
    return {"shuffled": shuffled, "source": by_source, "meaning": by_meaning}


def measure_drafts(night: Night) -> list[Result]:
    """Accepted draft tokens by step, from the answers of the group, with and without the sequence's own text."""
    results, grouped = [], groupings(night)
    everything = [np.random.default_rng(0).permutation(len(night.sources))]
    for use_own, kind in ((False, "finished answers"), (True, "finished answers and the sequence's own text")):
        counts = {name: drafts.count(rows, night.prompts, night.answers, use_own) for name, rows in grouped.items()}
        sums = {name: _total(of).accepted for name, of in counts.items()}
        sums["one corpus of all"] = drafts.count(everything, night.prompts, night.answers, use_own)[0].accepted
        if use_own:
            alone = [drafts.decode(*row, None, True) for row in zip(night.prompts, night.answers, strict=True)]
            sums["own text alone"] = _total(alone).accepted
        ratio = _ratio_of_groups(counts["meaning"], counts["shuffled"])
        measure = f"accepted drafts a step from {kind}: grouped by meaning / shuffled"
        detail = {f"by {name}": value for name, value in sums.items()}
        results.append(result(NAME, "16b", measure, ratio, ">= 1.3", ratio.low >= 1.3, **detail))
        ratio = _ratio_of_groups(counts["meaning"], [drafts.Count(1000, round(1000 * (1 + sums["one corpus of all"])))])
        measure = f"accepted drafts a step from {kind}: grouped by meaning / one corpus of all"
        results.append(result(NAME, "16b", measure, ratio, "> 1", ratio.low > 1, groups=len(counts["meaning"])))
    return results


def _total(counts: Sequence[drafts.Count]) -> drafts.Count:
    return sum(counts, drafts.Count(0, 0))


def _ratio_of_groups(ours: Sequence[drafts.Count], null: Sequence[drafts.Count]) -> Interval:
    """With a bootstrap over groups."""
    rng = np.random.default_rng(0)

    def drawn(of: Sequence[drafts.Count]) -> NDArray[np.float64]:
        numbers = np.array([(one.tokens, one.steps) for one in of])[rng.integers(0, len(of), (_DRAWS, len(of)))].sum(axis=1)
        accepted: NDArray[np.float64] = numbers[:, 0] / numbers[:, 1] - 1.0
        return accepted

    low, high = np.quantile(drawn(ours) / drawn(null), [0.025, 0.975])
    return Interval(_total(ours).accepted / _total(null).accepted, float(low), float(high))


def measure_experts(night: Night) -> list[Result]:
    """What grouping saves in distinct experts, as a share of what the greedy oracle saves."""
    rows = np.random.default_rng(1).permutation(np.flatnonzero(night.prompt_tokens < 300))[:_SEQUENCES]
    some = Night(
        night.sources[rows],
        [night.prompts[i] for i in rows],
        [night.answers[i] for i in rows],
        night.was_cut[rows],
        night.max_tokens[rows],
    )
    states = experts.hidden_states(str(resolve_model(MODEL).path), some.prompts, some.answers)
    by_meaning = np.concatenate([_in_order_of_meaning(some, rows) for rows in groupings(some)["source"]])
    results = []
    for router in ("random", "centres"):
        loads = experts.route(states, router)
        orders = [np.random.default_rng(seed).permutation(len(loads)) for seed in range(20)]
        shuffled = np.mean([experts.loads_per_token(loads, order).mean() for order in orders])
        oracle = experts.loads_per_token(loads, experts.oracle_order(loads)).mean()
        ours = experts.loads_per_token(loads, by_meaning)
        span = np.quantile((shuffled - _bootstrapped(ours)) / (shuffled - oracle), [0.025, 0.975])
        found = Interval(float((shuffled - ours.mean()) / (shuffled - oracle)), float(span[0]), float(span[1]))
        detail = {"shuffled": float(shuffled), "oracle": float(oracle), "grouped": float(ours.mean()), "batches": len(ours)}
        measure = f"experts by token, {router} router: saved by meaning / saved by a greedy oracle"
        results.append(result(NAME, "16c", measure, found, ">= 0.7", found.low >= 0.7, **detail))
    return results


def _in_order_of_meaning(night: Night, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    encoder, flat = open_static_encoder(resolve_model(MODEL).path, 0), csr([night.prompts[i] for i in rows])
    encoder.fit(*flat)
    vectors = encoder.embed_tokens(*flat)
    return rows[np.argsort(split(centred(vectors, vectors.mean(axis=0)), experts.BATCH).labels, kind="stable")]


def _bootstrapped(values: NDArray[np.float64]) -> NDArray[np.float64]:
    drawn: NDArray[np.float64] = np.random.default_rng(0).choice(values, (_DRAWS, len(values))).mean(axis=1)
    return drawn


def main() -> None:
    """Measure and write down, or with --dry only print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["speed", "quality", "merging", "lengths", "drafts", "experts"])
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args()
    nights = read_nights(given.data) if given.data else []
    parts: dict[str, Callable[[], list[Result]]] = {
        "speed": lambda: measure_speed(given.rows, given.pairs),
        "quality": lambda: measure_quality(given.corpus, 600),
        "merging": lambda: measure_merging(given.corpus),
        "lengths": lambda: measure_lengths(nights, False) + measure_lengths(nights, True),
        "drafts": lambda: measure_drafts(joined(nights)),
        "experts": lambda: measure_experts(joined(nights)),
    }
    results = [one for part in given.parts for one in parts[part]()]
    if given.dry:
        sys.stdout.write(
            "".join(
                f"{one.measure}: {one.value:.4g} [{one.low:.4g}, {one.high:.4g}] {one.passed} {one.detail}\n"
                for one in results
            )
        )
    else:
        record(results)


if __name__ == "__main__":
    main()
