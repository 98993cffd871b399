"""Moments as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from tasks.core.moment import moment

NOW = datetime(2026, 10, 24, 22, 0, tzinfo=UTC)


def test_a_time_of_day_is_the_next_one() -> None:
    """Later today, else tomorrow, by the clock of its zone; over a change of the clocks as well."""
    assert moment("23:30 UTC", NOW) == NOW + timedelta(hours=1.5)
    assert moment("21:59 UTC", NOW) == NOW + timedelta(hours=23, minutes=59)
    assert moment("06:30 Europe/Berlin", NOW) == datetime(2026, 10, 25, 5, 30, tzinfo=UTC)  # the clocks went back
    assert moment("22:00 UTC", NOW) == NOW + timedelta(days=1)


def test_a_date_says_it_all() -> None:
    """With an offset of its own, or in a zone that is named."""
    assert moment("2026-12-01T06:30+01:00", NOW) == datetime(2026, 12, 1, 5, 30, tzinfo=UTC)
    assert moment("2026-12-01T06:30 America/New_York", NOW) == datetime(2026, 12, 1, 11, 30, tzinfo=UTC)


def test_without_a_zone_it_is_the_machines() -> None:
    """A bare time is of the clock on the wall."""
    assert moment("06:30", NOW).astimezone().strftime("%H:%M") == "06:30"
    assert moment("2026-12-01T06:30", NOW).astimezone().strftime("%Y-%m-%d %H:%M") == "2026-12-01 06:30"


@pytest.mark.parametrize("text", ["", "soon", "25:00", "06:30 Mars/Olympus", "2026-13-01T06:30", "06:30 ../etc"])
def test_what_is_no_moment(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError):
        moment(text, NOW)
