"""Goal 5: how much of a table's prompts is shared when its fields are put in order, and how long finding the order takes.

Tables of four kinds with several seeds. Shared is what a prompt has in common, in bytes of whole fields, with the one before
it in the order of the night. Compared with:

- Greedy Group Recursion (arXiv 2403.05821, a re-implementation), without limits, and with its recursion stopped at depths 4
  and 2, as it needs it on large tables;
- one order for all rows: the columns by what they would share alone, and as they are given;
- the optimum, by trying every tree, on tables of 10 to 15 rows;
- with `--model`, the same in tokens and whole blocks of 16 of the model's tokenizer.

Solve time is from the cells' hashes to the order, in a process that has done it before; once more in new processes, with the
compiled code kept from earlier ones.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.ggr import Order, ggr, saved
from benchmarks.rig import REPOSITORY, Result, interval, record, result
from benchmarks.tables import KINDS, Table, mixed, tickets
from tasks.core.protocols import Tokenizer
from tasks.ingest.fields.order import FieldOrder
from tasks.ingest.fields.sample import Sample
from tasks.ingest.fields.trees import exact

NAME = "field_order"
_UNLIMITED = 1 << 30


def sampled(table: Table) -> Sample:
    sample = Sample(table.names)
    for row in table.rows():
        sample.add(row)
    return sample


def orders_of(table: Table, order: FieldOrder) -> list[Order]:
    """The order that each row gets, as a run gives it to it."""
    place = {name: i for i, name in enumerate(table.names)}
    return [tuple(place[name] for name, _ in order.arrange(row)) for row in table.rows()]


def rate(table: Table, orders: Sequence[Order]) -> float:
    """The share of all cells' bytes that need not be computed."""
    return saved(table.codes, table.lengths, orders) / float(table.lengths.sum())


def by_worth(table: Table) -> Order:
    """All columns in one order: those first that alone would share most."""
    lengths, worth = table.lengths, []
    for field in range(table.codes.shape[1]):
        first = np.unique(table.codes[:, field], return_index=True)[1]
        worth.append(int(lengths[:, field].sum() - lengths[first, field].sum()))
    return tuple(sorted(range(len(worth)), key=lambda field: (-worth[field], field)))


def measure_rates(num_rows: int, seeds: int, *, is_limited: bool) -> list[Result]:
    """Hit rates on tables of one size, over the peer's and beside those of orders that are one for all rows."""
    depths = (4, 2) if is_limited else (_UNLIMITED, _UNLIMITED)
    found: list[tuple[float, float, float, float]] = []
    for make in KINDS:
        for seed in range(seeds):
            table = make(num_rows, seed)
            given = tuple(range(len(table.names)))
            orders = (
                orders_of(table, sampled(table).order()),
                ggr(table.codes, table.lengths, *depths),
                [by_worth(table)] * num_rows,
                [given] * num_rows,
            )
            own, peer, worth, as_given = (rate(table, of) for of in orders)
            sys.stdout.write(f"{table.name} {num_rows} #{seed}: {own:.4f}, GGR {peer:.4f}, {worth:.4f}, {as_given:.4f}\n")
            found.append((own, peer, worth, as_given))
    ratios = [own / peer for own, peer, _, _ in found]
    means = dict(zip(("own", "ggr", "one_order_by_worth", "as_given"), np.mean(found, axis=0).tolist(), strict=True))
    detail = {"rows": num_rows, "tables": len(ratios), "worst": min(ratios), "best": max(ratios), **means}
    measure = f"hit rate / GGR {'stopped at depths 4 and 2' if is_limited else 'without limits'}"
    return [result(NAME, "5", measure, interval(ratios), ">= 1", min(ratios) >= 1.0, **detail)]


def measure_optimum(num_tables: int) -> list[Result]:
    """Small tables beside the best there is: in all, and the worst of them."""
    ours = best = greedy = 0
    ratios = []
    for seed in range(num_tables):
        table = (mixed, tickets)[seed % 2](10 + seed % 6, seed)
        distinct, first = np.unique(table.codes[:, 1:], axis=0, return_index=True)
        table = Table(table.name, table.names[1:], distinct, table.texts[1:])
        num, lengths = len(first), np.ascontiguousarray(table.lengths, np.int32)
        everything = (1 << distinct.shape[1]) - 1
        codes = np.ascontiguousarray(distinct, np.int32)
        most = exact(codes, lengths, np.arange(num), 0, num, everything, np.zeros(num, np.int64))[0]
        own = saved(table.codes, table.lengths, orders_of(table, sampled(table).order()))
        ours, best = ours + own, best + most
        greedy += saved(table.codes, table.lengths, ggr(table.codes, table.lengths, _UNLIMITED, _UNLIMITED))
        ratios.append(own / most if most else 1.0)
    detail = {"tables": num_tables, "worst": min(ratios), "ggr": greedy / best}
    detail["share_below_0.98"] = float(np.mean(np.array(ratios) < 0.98))
    whole, middle = ours / best, interval(ratios)
    measure = "shared / optimum, tables of 10 to 15 rows, in all"
    return [
        result(NAME, "5", measure, whole, ">= 0.98", whole >= 0.98, **detail),
        result(NAME, "5", "the same, the table in the middle", middle, ">= 0.98", middle.low >= 0.98, tables=num_tables),
    ]


def measure_time(num_rows: int, seeds: int) -> list[Result]:
    """Seconds from hashes to order."""
    times: list[float] = []
    again: list[float] = []
    cpu: list[float] = []
    sampled(tickets(20, 0)).order()  # compiled before it is timed
    for make in KINDS:
        for seed in range(seeds):
            sample = sampled(make(num_rows, seed))
            for spent in (times, again):
                begin, begin_cpu = time.perf_counter(), time.process_time()
                sample.order()
                spent.append(time.perf_counter() - begin)
                cpu.append(time.process_time() - begin_cpu)
    of_all, noise = interval(times), interval([one / other for one, other in zip(times, again, strict=True)])
    detail = {
        "tables": len(times),
        "worst_s": max(times),
        "cpu_s": float(np.median(cpu)),
        "worst_cpu_s": max(cpu),
        "aa": str(noise),
    }
    is_met = of_all.high <= 1 and max(times) <= 1
    warm = result(NAME, "5", f"s to solve {num_rows} x 10", of_all, "<= 1", is_met, **detail)
    return [warm, measure_first(num_rows)]


def measure_first(num_rows: int) -> Result:
    """The same with all that a new process needs for it: numba, and the compiled code that an earlier one has left."""
    code = (
        "import time; from benchmarks.tables import tickets; from tasks.ingest.fields.order import value_hash;"
        f"table = tickets({num_rows}, 0); rows = table.rows(); begin = time.perf_counter();"
        "from tasks.ingest.fields.sample import Sample; sample = Sample(table.names); loaded = time.perf_counter();"
        "[sample.add(row) for row in rows]; added = time.perf_counter(); sample.order();"
        "print(loaded - begin + time.perf_counter() - added)"
    )
    times = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-P", "-c", code], cwd=REPOSITORY, check=True, capture_output=True, text=True)
        times.append(float(done.stdout))
    of_all = interval(times)
    return result(NAME, "5", f"s to solve {num_rows} x 10 in a new process", of_all, "reported", True, processes=5)


def measure_tokens(model: str, num_rows: int) -> list[Result]:
    """What it comes to in blocks of 16 tokens of whole prompts, a chat template and an instruction before them."""
    from tasks.engine.models import resolve_model
    from tasks.engine.tokenizer import ModelTokenizer

    tokenizer = ModelTokenizer(resolve_model(model).path, None)
    ratios, rates = [], []
    for make in KINDS:
        table = make(num_rows, 0)
        orders = orders_of(table, sampled(table).order())
        peer = ggr(table.codes, table.lengths, _UNLIMITED, _UNLIMITED)
        given = [tuple(range(len(table.names)))] * num_rows
        shared = [_blocks_shared(table, one, tokenizer) for one in (orders, peer, given)]
        rates.append(" ".join(f"{one:.3f}" for one in shared))
        ratios.append(shared[0] / shared[1])
    found = interval(ratios)
    detail = {"rows": num_rows, "ours_ggr_given": "; ".join(rates)}
    measure = "cached tokens / GGR's, blocks of 16, prompts whole"
    return [result(NAME, "5", measure, found, ">= 1", min(ratios) >= 1.0, **detail)]


def _blocks_shared(table: Table, orders: Sequence[Order], tokenizer: Tokenizer) -> float:
    texts = []
    for row, order in zip(table.rows(), orders, strict=True):
        lines = "\n".join(f"{name}: {value}" for name, value in (row[field] for field in order))
        texts.append(tokenizer.render_turns(("user",), [f"Classify this record.\n{lines}\nAnswer:"]))
    prompts = sorted(tokenizer.encode(texts, rendered=[True] * len(texts)))
    shared = total = 0
    for one, other in zip([[], *prompts[:-1]], prompts, strict=True):
        same = 0
        for left, right in zip(one, other, strict=False):
            if left != right:
                break
            same += 1
        shared += same // 16 * 16
        total += len(other)
    return shared / total


def main() -> None:
    """Measure and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", default=["optimum", "rates", "time"], help="what of it is measured")
    parser.add_argument("--model", help="measure in tokens of this model, too")
    parser.add_argument("--dry", action="store_true", help="write nothing down")
    given = parser.parse_args()
    results: list[Result] = []
    if "optimum" in given.parts:
        results += measure_optimum(120)
    if "rates" in given.parts:
        results += measure_rates(3000, given.seeds, is_limited=False)
        results += measure_rates(given.rows, given.seeds, is_limited=True)
    if "time" in given.parts:
        results += measure_time(given.rows, given.seeds)
    if given.model:
        results += measure_tokens(given.model, 2000)
    if given.dry:
        sys.stdout.write("".join(f"{one}\n" for one in results))
    else:
        record(results)


if __name__ == "__main__":
    main()
