"""The order of fields: how near it comes to the best there is, and that it hangs on the rows alone."""

from collections.abc import Sequence
from itertools import pairwise, permutations, product
from random import Random

import numpy as np
import pytest

from tasks.ingest.fields.grouping import SQUARE, saved
from tasks.ingest.fields.order import Cell, FieldOrder, Rule, value_hash
from tasks.ingest.fields.sample import Sample
from tasks.ingest.fields.search import MAX_FIELDS
from tasks.ingest.fields.trees import clustered, exact

Rows = Sequence[list[Cell]]


def size(cell: Cell) -> int:
    return len(cell[0]) + len(cell[1].encode()) + 3


def hits(rows: Rows) -> int:
    """What sorted neighbours share of their leading cells."""
    total = 0
    for one, other in pairwise(sorted(rows)):
        for left, right in zip(one, other, strict=False):
            if left != right:
                break
            total += size(left)
    return total


def table(seed: int, num_rows: int, num_fields: int) -> list[list[Cell]]:
    """A table with values of skewed frequency, one of whose fields follows from another."""
    random = Random(seed)
    widths = [random.choice((1, 4, 12, 40)) for _ in range(num_fields)]
    kinds = [random.randint(2, max(2, num_rows // 2)) for _ in range(num_fields)]
    rows = []
    for _ in range(num_rows):
        values = [int(kind * random.random() ** 2) for kind in kinds]
        values[-1] = values[0] // 2
        rows.append([(f"f{i}", f"{v:x}" + "x" * width) for i, (v, width) in enumerate(zip(values, widths, strict=True))])
    return rows


def learnt(rows: Rows) -> FieldOrder:
    sample = Sample()
    for row in rows:
        sample.add(row)
    return sample.order()


def coded(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    distinct = sorted({tuple(row) for row in rows})
    values = [sorted({row[i] for row in distinct}) for i in range(len(distinct[0]))]
    codes = np.array([[of.index(cell) for of, cell in zip(values, row, strict=True)] for row in distinct], np.int32)
    return codes, np.array([[size(cell) for cell in row] for row in distinct], np.int32)


def optimum(rows: Rows) -> int:
    codes, lengths = coded(rows)
    num = len(codes)
    copies = sum(sum(map(size, row)) for row in rows) - int(lengths.sum())
    return copies + exact(codes, lengths, np.arange(num), 0, num, (1 << codes.shape[1]) - 1, np.zeros(num, np.int64))[0]


@pytest.mark.parametrize("seed", range(6))
def test_the_exact_search_finds_what_trying_every_order_finds(seed: int) -> None:
    """Every order of every row's fields, each with the rows sorted: none saves more, and one saves as much."""
    rows = table(seed, 4, 3)
    assert optimum(rows) == max(hits(orders) for orders in product(*(list(map(list, permutations(row))) for row in rows)))


def test_small_tables_come_near_the_optimum() -> None:
    """Of what could be saved at least 98 % are, in all; where all is tried nearly everything."""
    for num_rows, least in ((8, 0.995), (12, 0.99), (15, 0.98)):
        tables = [table(seed, num_rows, 3 + seed % 4) for seed in range(12)]
        reached = sum(hits([learnt(rows).arrange(row) for row in rows]) for rows in tables)
        assert reached >= least * sum(map(optimum, tables))


@pytest.mark.parametrize("seed", range(4))
def test_larger_tables_beat_greedy_groups_and_every_fixed_order(seed: int) -> None:
    """The order that depends on the row saves more than the best that does not, and than taking groups greedily."""
    rows = table(seed, 400, 5)
    order = learnt(rows)
    reached = hits([order.arrange(row) for row in rows])
    assert reached >= max(hits([[row[i] for i in places] for row in rows]) for places in permutations(range(5)))
    codes, lengths = coded(rows)
    desk = np.zeros((4, len(codes) + int(codes.max())), np.int64)
    greedy = saved(codes, lengths, np.arange(len(codes)), 0, len(codes), (1 << 5) - 1, SQUARE, desk)
    assert reached >= greedy + sum(sum(map(size, row)) for row in rows) - int(lengths.sum())


def test_clusters_are_a_partition() -> None:
    """Rows without anything in common are in no group, and what is saved is at most what can be."""
    codes, lengths = coded([[("a", "1"), ("b", "1")], [("a", "1"), ("b", "2")], [("a", "3"), ("b", "9")]])
    label = np.zeros(3, np.int64)
    assert clustered(codes, lengths, np.arange(3), 0, 3, 3, label) == (5, 1)
    assert label.tolist() == [0, 0, -1]


def test_a_long_field_that_few_share_goes_before_a_short_one_that_many_share() -> None:
    """It is length that counts: pairs of rows with one long text stay together, whatever their flag."""
    rows = [[("flag", "yn"[i % 2]), ("text", "x" * 400 + str(i // 2))] for i in range(40)]
    assert [name for name, _ in learnt(rows).arrange(rows[7])] == ["text", "flag"]


def test_what_follows_from_a_field_goes_with_it() -> None:
    """A brand's country stands beside the brand, before the title that is different in every row."""
    rows = [[("title", f"t{i}" * 9), ("country", "CDE"[i % 5 % 3]), ("brand", f"brand {i % 5}")] for i in range(50)]
    assert [name for name, _ in learnt(rows).arrange(rows[3])][2] == "title"


def test_the_first_test_that_a_row_passes_counts() -> None:
    """Tests are tried in their order; fields that no test decides follow in the order of the rest."""
    rules = (Rule(0, 1, value_hash("x"), (1, 3)), Rule(0, 0, value_hash("y"), (0,)), Rule(1, 0, value_hash("y"), (0,)))
    order = FieldOrder(("a", "b", "c", "d"), (2, 3, 0, 1), (), rules)

    def names(**cells: str) -> str:
        return "".join(name for name, _ in order.arrange(list(cells.items())))

    assert names(a="y", b="x", c="", d="") == "bdac"
    assert names(a="y", b="-", c="", d="") == "acdb"
    assert names(a="-", b="-", c="", d="") == "cdab"
    assert names(z="1", b="x", a="y", d="") == "bdaz"


def test_no_rows_have_an_order_too() -> None:
    """Nothing, one row, and rows without fields leave what is given as it is."""
    tables: list[Rows] = [[], [[("b", "1"), ("a", "2")]], [[], []]]
    for rows in tables:
        order = learnt(rows)
        assert [sorted(order.arrange(row)) for row in rows] == [sorted(row) for row in rows]


def test_a_sample_does_not_hang_on_the_order_of_rows() -> None:
    """Of too many cells the same rows are kept, and few enough, whichever come first; their order is used for all."""
    rows = [[("a", str(i % 7)), ("b", str(i)), ("c", "long text" * (1 + i % 3))] for i in range(3000)]
    found = []
    for seed in range(3):
        Random(seed).shuffle(rows)
        sample = Sample(("a", "b", "c"), max_cells=600)
        for row in rows:
            sample.add(row)
        assert 100 <= sample.num_rows <= 200
        found.append(sample.order().digest)
    assert len(set(found)) == 1


def test_more_fields_than_are_searched() -> None:
    """The longest ones are put in order; the others follow as they are given, and none is lost."""
    rows = [[(f"f{i}", f"{(i * row) % 3}" * (1 + i)) for i in range(MAX_FIELDS + 9)] for row in range(12)]
    order = learnt(rows)
    assert len(order.names) == MAX_FIELDS
    for row in rows:
        assert sorted(order.arrange(row)) == sorted(row)
        assert order.arrange(row)[MAX_FIELDS:] == row[:9]
