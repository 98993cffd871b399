"""A moment as people write it: a time of day, or a date with a time, both with a zone or in the machine's own."""

from datetime import datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

WANTED = "a time such as 06:30, 06:30 Europe/Berlin or 2026-12-01T06:30+01:00"


def moment(text: str, now: datetime) -> datetime:
    """The moment that is meant at `now`; a time of day is the next one that comes. Raises ValueError."""
    when, _, name = text.strip().partition(" ")
    zone = _zone(name) if name else None
    if "T" in when:
        given = datetime.fromisoformat(when)
        return given if given.tzinfo else _local(given, zone)
    at, today = time.fromisoformat(when), now.astimezone(zone).date()
    found = _local(datetime.combine(today, at), zone)
    return found if found > now else _local(datetime.combine(today + timedelta(days=1), at), zone)


def _local(naive: datetime, zone: tzinfo | None) -> datetime:
    """The moment of a clock on the wall: of the zone, or of the machine; with its offset on that day."""
    return naive.replace(tzinfo=zone) if zone else naive.astimezone()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"{name!r} is no timezone") from error
