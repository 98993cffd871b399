"""A forecast for people: tables on stdout."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tasks.forecast.forecast import Forecast, SourceForecast
from tasks.forecast.reach import Reached


def rendered(found: Forecast) -> RenderableType:
    """All of it, one table below the other."""
    parts = [_counts(found), _lengths(found), _sharing(found), _orders(found)]
    if found.advice:
        parts.append(_advice(found))
    return Group(*parts, *(Text(f"note: {note}") for note in _notes(found)))


def _table(title: str, *columns: str, texts: int = 1) -> Table:
    """A table whose first columns are text and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < texts else "right", overflow="fold")
    return table


def _counts(found: Forecast) -> Table:
    table = _table("what would run", "", "", texts=2)
    table.show_header = False
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(found.reject_reasons.items()))
    near = f", {found.near_duplicates:,} of them near ones" if found.near_duplicates else ""
    predicted = f"{found.num_predicted:,} of {found.sequences:,} sequences predicted from earlier runs"
    how = predicted if found.num_predicted else "at most: no earlier run tells how long answers get"
    table.add_row("rows in", f"{found.rows:,} in {found.files:,} file{'s' * (found.files != 1)}")
    table.add_row("rejected", f"{found.rejects:,}" + f" ({reasons})" * bool(reasons))
    table.add_row("requests", f"{found.requests:,}")
    table.add_row("duplicates", f"{found.duplicates:,} get another one's answer{near}")
    table.add_row("sequences", f"{found.sequences:,}")
    table.add_row("prompt tokens", f"{found.prompt_tokens:,}")
    table.add_row("output tokens", f"{found.output_tokens:,} ({how})")
    return table


def _lengths(found: Forecast) -> Table:
    names = [name if name == "over" else f"<= {name}" for name in found.buckets]
    table = _table("sequences by length, prompt and allowed output, in tokens", "source", *names)
    for source in found.sources:
        table.add_row(Text(source.source), *(f"{number:,}" for number in source.lengths))
    if len(found.sources) > 1:
        table.add_row("all", *(f"{number:,}" for number in found.buckets.values()), style="bold")
    return table


def _sharing(found: Forecast) -> Table:
    columns = ("source", "ends of the prefixes that spare the most", "tokens", "requests", "spared", "hit rate at best")
    table = _table("what prompts share", *columns, texts=2)
    for source in found.sources:
        for row in _prefixes(source):
            table.add_row(*row)
    return table


def _prefixes(source: SourceForecast) -> Iterator[tuple[Text | str, ...]]:
    best, name = f"{source.ideal_hit_rate:.1%}", Text(source.source)
    if not source.prefixes:
        yield name, "next to nothing", "", "", "", best
    for i, prefix in enumerate(source.prefixes):
        numbers = (f"{prefix.num_tokens:,}", f"{prefix.num_requests:,}", f"{prefix.spared_tokens:,}")
        yield "" if i else name, Text(f"...{prefix.text}"), *numbers, "" if i else best


def _orders(found: Forecast) -> Table:
    room = f"{found.shape.usable_blocks * found.shape.block_size:,} tokens in blocks of {found.shape.block_size}"
    columns = ("order", "prefill tokens", "of the bound", "hit rate", "computed again", "KV peak", "KV in use", "time")
    table = _table(f"what orders reach with a KV cache of {room}", *columns)
    for name, reached in (("ours", found.planned), ("sorted", found.sorted), ("as in the input", found.arrival)):
        table.add_row(name, *_order(reached, found.ideal_prefill_tokens))
    bound = f"{found.ideal_prefill_tokens:,}"
    table.add_row("the bound", bound, "1.000", f"{found.ideal_hit_rate:.1%}", "0", "", "", "", style="bold")
    return table


def _order(reached: Reached, ideal: int) -> Iterator[str]:
    yield f"{reached.prefill_tokens:,}"
    yield f"{reached.prefill_tokens / max(ideal, 1):.3f}"
    yield f"{reached.hit_rate:.1%}"
    yield f"{reached.recomputed_tokens:,}"
    yield f"{reached.peak_kv_tokens:,}"
    yield f"{reached.kv_use:.0%}"
    yield "" if reached.seconds is None else duration(reached.seconds)


def duration(seconds: float) -> str:
    """In the largest units that it has."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _advice(found: Forecast) -> Table:
    table = _table("settings that suit this", "option", "value", "because", texts=3)
    for one in found.advice:
        table.add_row("--" + one.setting.replace("_", "-"), str(one.value), one.reason)
    return table


def _notes(found: Forecast) -> Iterator[str]:
    if found.refusal:
        yield f"a run would stop before the engine starts: {found.refusal}"
    if found.unknown:
        yield found.unknown
    if found.duplicates:
        yield f"sorted and as in the input, the {found.duplicates:,} duplicates are answered as well"
    if found.is_sampled:
        yield "what orders reach is estimated from twelve windows of a thousand neighbours each"
    if found.speed and found.measured:
        fit = f"fitted to {found.speed.num_steps:,} steps on {found.measured.device} in {found.measured.dtype}"
        faster = f"; ours is {found.speed_up:.2f} times as fast as the input's order" if found.speed_up else ""
        yield f"times: {fit}, with a mean error of {found.speed.error:.0%} a step{faster}"
    else:
        yield "times are not known: no run of this model on this machine has been timed yet"
    yield _energy(found)


def _energy(found: Forecast) -> str:
    if found.power is None:
        return "energy and cost are not known: no power has been measured"
    by = f"{found.power.watts:,.0f} W on average in {duration(found.power.seconds)} of earlier runs of this model"
    if found.energy_kwh is None:
        return f"energy is not known, as times are not; a card took {by}"
    cost = f", which cost {found.cost:,.2f}" if found.cost is not None else ""
    return f"energy: about {found.energy_kwh:,.3g} kWh a card{cost}, by {by}"
