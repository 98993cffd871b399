"""Which ids were there before, against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.ingest.seen import NEW, Seen

IDS = st.lists(st.lists(st.sampled_from([f"id{i}" for i in range(40)]), max_size=30), max_size=30)


@given(IDS)
def test_the_first_place_of_each_id(chunks: list[list[str]]) -> None:
    """For any ids in any chunks the answer is a dict's."""
    seen, known, place = Seen(), dict[str, int](), 0
    for ids in chunks:
        places = np.arange(place, place + len(ids), dtype=np.int64)
        firsts = seen.add(ids, places)
        for one, at, first in zip(ids, places, firsts, strict=True):
            expected = known.setdefault(one, int(at))
            assert first == (NEW if expected == at else expected)
        place += len(ids)


def test_runs_stay_few() -> None:
    """Half a million ids in small chunks lie in some twenty sorted runs, and all are found again."""
    seen = Seen()
    for begin in range(0, 500_000, 1000):
        ids = [str(i) for i in range(begin, begin + 1000)]
        assert (seen.add(ids, np.arange(begin, begin + 1000)) == NEW).all()
    assert len(seen._runs) <= 20
    sample = list(range(0, 500_000, 997))
    assert seen.add([str(i) for i in sample], np.zeros(len(sample), np.int64)).tolist() == sample
