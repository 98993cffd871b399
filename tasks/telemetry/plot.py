"""A run's telemetry as a picture: temperature, power, clock, tokens a second and sequences over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.forecast.plot import check_plot
from tasks.status import find_run
from tasks.storage.atomic import replacing_file
from tasks.storage.layout import Layout
from tasks.telemetry.lines import Drawn, Lines, lines_of
from tasks.telemetry.summary import LINE_C

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_CARDS = 16
_HOURS_FROM = 2.0
_CARD_PANELS = (
    ("temperature, °C", (("temperature_c", "-", ""), ("memory_temperature_c", ":", "memory"))),
    ("power, W", (("power_w", "-", ""), ("enforced_w", ":", "limit"))),
    ("SM clock, MHz", (("sm_clock_mhz", "-", ""), ("set_clock_mhz", ":", "set"))),
)
_ENGINE_PANELS = (
    ("tokens/s", (("generated_per_s", "-", "generated"), ("prefilled_per_s", ":", "prefilled"))),
    ("sequences", (("running", "-", "running"), ("waiting", ":", "waiting"), ("set_max_num_seqs", "--", "allowed"))),
)
_Panel = tuple[str, Sequence[tuple[str, str, str]], Sequence[Lines]]


def plot_telemetry(layout: Layout, prefix: str, path: Path, line_c: float = LINE_C) -> None:
    """Draw the run whose id begins so, which has telemetry, into a .png, .svg or .pdf. Raises ConfigError."""
    check_plot(path)
    run = find_run(layout, prefix)
    figure = drawn(lines_of(layout, run.run_id), run.run_id, line_c)
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=120)


def drawn(lines: Drawn, title: str, line_c: float) -> "Figure":
    """The picture; a panel that nothing is known for is left out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [*_known(_CARD_PANELS, lines.cards[:_MAX_CARDS]), *_known(_ENGINE_PANELS, lines.engines)]
    figure = Figure(figsize=(11, 1 + 1.9 * max(1, len(panels))), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(max(1, len(panels)), 1, sharex=True, squeeze=False)[:, 0]
    longest = max((of.hours[-1] for of in (*lines.cards, *lines.engines)), default=0.0)
    unit, in_an_hour = ("hours", 1.0) if longest >= _HOURS_FROM else ("minutes", 60.0)
    for axes, panel in zip(all_axes, panels, strict=False):
        _draw(axes, panel, lines.borders, in_an_hour)
        if panel[0] == _CARD_PANELS[0][0]:
            axes.axhline(line_c, color="tab:red", linewidth=0.8, label="line")
        _legend(axes)
    more = f", the first {_MAX_CARDS} of {len(lines.cards)} cards" if len(lines.cards) > _MAX_CARDS else ""
    all_axes[0].set_title(f"run {title}{more}")
    all_axes[-1].set_xlabel(f"{unit} of work" + "; dashed: put down and taken up again" * bool(lines.borders))
    return figure


def _known(panels: Sequence[tuple[str, Sequence[tuple[str, str, str]]]], lines: Sequence[Lines]) -> list[_Panel]:
    return [
        (title, styles, lines) for title, styles in panels if any(of.known(name) for of in lines for name, _, _ in styles)
    ]


def _draw(axes: Any, panel: _Panel, borders: Sequence[float], in_an_hour: float) -> None:
    title, styles, lines = panel
    for place, of in enumerate(lines):
        for name, style, word in styles:
            if of.known(name):
                label = f"{of.label} {word}".strip() if len(lines) > 1 else word or of.label
                color = f"C{place % 10}" if len(lines) > 1 or style == "-" else "tab:gray"
                axes.plot(of.hours * in_an_hour, of.values[name], style, color=color, linewidth=1, label=label)
    for border in borders:
        axes.axvline(border * in_an_hour, color="black", linewidth=0.8, linestyle=(0, (5, 5)))
    axes.set_ylabel(title)
    axes.margins(x=0.01)
    axes.grid(alpha=0.3)


def _legend(axes: Any) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7, frameon=False)
