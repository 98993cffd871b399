"""A run's telemetry for people: tables on stdout."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tasks.telemetry.summary import CardSums, EngineSums, Summary

_JOULES_PER_KWH = 3.6e6


def rendered(found: Summary) -> RenderableType:
    """All of it, one table below the other."""
    parts: list[RenderableType] = [Text(_heading(found))]
    if found.cards:
        parts.append(_table("cards", [_card(card, found.line_c) for card in found.cards]))
    if found.engines:
        parts.append(_table("engines", [_engine(engine) for engine in found.engines]))
    return Group(*parts, *(Text(f"note: {note}") for note in _notes(found)))


def _heading(found: Summary) -> str:
    span = f"{found.began:%Y-%m-%d %H:%M:%S} to {found.ended:%Y-%m-%d %H:%M:%S %Z}"
    sessions = f"{found.sessions} session{'s' * (found.sessions != 1)}"
    return f"run {found.run_id}: {found.readings:,} readings in {sessions}, {span}"


def _table(title: str, columns: list[dict[str, str]]) -> Table:
    """What is told of each thing, from top to bottom; what nobody said of any is left out."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    for _ in columns:
        table.add_column(justify="right", overflow="fold")
    for name in columns[0]:
        if any(column[name] for column in columns):
            table.add_row(Text(name), *(Text(column[name] or "-") for column in columns))
    return table


def _card(card: CardSums, line_c: float) -> dict[str, str]:
    reasons = ", ".join(f"{reason} {seconds:,.0f} s" for reason, seconds in card.throttle_s.items())
    return {
        "card": f"{card.index}: {card.name}",
        "measured": f"{card.seconds:,.0f} s",
        "temperature": _of(card.mean_c, "°C on average, ", ".1f") + _of(card.max_c, "°C at most", ".0f"),
        "memory's": _of(card.max_memory_c, "°C at most", ".0f"),
        f"above {line_c:g} °C": _of(card.above_s, "s"),
        "power": _of(card.mean_w, "W on average, ") + _of(card.max_w, "W at most"),
        "energy, by its counter": _of(_kwh(card.counted_j), "kWh", ".3f"),
        "energy, from power": _of(_kwh(card.integrated_j), "kWh", ".3f"),
        "SM clock": _of(card.mean_mhz, "MHz on average, ") + _of(card.min_mhz, "MHz at least"),
        "slowed down by": reasons,
        "settings changed": f"{card.changes:,} time{'s' * (card.changes != 1)}" if card.changes else "",
    }


def _engine(engine: EngineSums) -> dict[str, str]:
    rate = engine.hit_rate
    return {
        "engine": f"{engine.engine}",
        "started": f"{engine.lives} time{'s' * (engine.lives != 1)}",
        "tokens generated": _of(engine.generated_tokens, ""),
        "tokens generated a second": _of(engine.tokens_per_s, "", ",.1f"),
        "prompt tokens computed": _of(engine.prefilled_tokens, ""),
        "steps": _of(engine.steps, ""),
        "sequences running": _of(engine.mean_running, "on average, ", ",.1f") + _of(engine.max_running, "at most"),
        "sequences waiting": _of(engine.mean_waiting, "on average", ",.1f"),
        "KV cache taken": _of(None if engine.max_kv_use is None else 100 * engine.max_kv_use, "% at most", ".0f"),
        "prefix cache hits": _of(None if rate is None else 100 * rate, "%", ".1f"),
        "preemptions": _of(engine.preemptions, ""),
    }


def _kwh(joules: float | None) -> float | None:
    return None if joules is None else joules / _JOULES_PER_KWH


def _of(value: float | None, unit: str, digits: str = ",.0f") -> str:
    """A number with its unit; nothing where it is not known."""
    return "" if value is None else f"{value:{digits}} {unit}".rstrip(" ") + " " * unit.endswith(" ")


def _notes(found: Summary) -> Iterator[str]:
    if not found.cards:
        yield "no GPU was measured: there is none, or it could not be read; `nightbatch doctor` says why"
    if found.j_per_token is not None and found.energy_j is not None:
        yield f"{found.j_per_token:.3g} J for each token generated; {found.energy_j / _JOULES_PER_KWH:.3f} kWh in all"
