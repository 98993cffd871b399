"""A forecast as a picture: lengths by source as a heat map, and what orders reach beside the bound."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tasks.core.errors import ConfigError
from tasks.forecast.forecast import Forecast
from tasks.storage.atomic import replacing_file

_MAX_SOURCES = 40
_FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raise ConfigError when no picture can be made there."""
    if path.suffix.lower() not in _FORMATS:
        raise ConfigError(f"--plot {path}: the file must end in one of {', '.join(_FORMATS)}")
    if path.is_dir():
        raise ConfigError(f"--plot {path}: that is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--plot {path}: its folder does not exist")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"--plot {path}: its folder cannot be written to")
    if find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'nightbatch[plot]'")


def plot(found: Forecast, path: Path) -> None:
    """Write the picture; the largest sources have a line each. Raises ConfigError."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sources = sorted(found.sources, key=lambda source: -source.requests)[:_MAX_SOURCES]
    figure = Figure(figsize=(11, 2.6 + 0.32 * len(sources)), layout="constrained")
    FigureCanvasAgg(figure)
    heat, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    counts = np.array([source.lengths for source in sources], dtype=float)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    heat.imshow(share, aspect="auto", cmap="viridis", vmin=0, vmax=1)
    heat.set_xticks(range(len(found.buckets)), [name if name == "over" else f"≤ {name}" for name in found.buckets])
    heat.set_yticks(range(len(sources)), [source.source for source in sources])
    heat.set_xlabel("prompt and allowed output, tokens")
    which = f", the {len(sources)} largest of {len(found.sources):,}" if len(sources) < len(found.sources) else ""
    heat.set_title(f"sequences by length, share of their source{which}")
    for (row, column), number in np.ndenumerate(counts):
        if number:
            color = "black" if share[row, column] > 0.6 else "white"
            heat.text(column, row, f"{number:,.0f}", ha="center", va="center", color=color, fontsize=8)
    names = ("as in the input", "sorted", "ours", "the bound")
    orders = (found.arrival, found.sorted, found.planned)
    values = [*(reached.prefill_tokens for reached in orders), found.ideal_prefill_tokens]
    drawn = bars.barh(names, values, color=("tab:gray", "tab:gray", "tab:blue", "tab:green"))
    bars.bar_label(drawn, labels=[f"{value:,}" for value in values], padding=3, fontsize=8)
    bars.margins(x=0.25)
    bars.invert_yaxis()
    bars.set_xlabel("prompt tokens computed")
    bars.set_title("prefill by order")
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=120)
