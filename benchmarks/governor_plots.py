"""Pictures of what the governor does: one hot afternoon second by second, and energy at equal deadline."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import deadlines
from benchmarks.deadlines import MIXES, ORACLE, SLACKS
from benchmarks.hot_nights import CONTROLLERS, SET_POINT_C
from benchmarks.rig import REPOSITORY
from benchmarks.rooms import LINE_C, Floats, Scene, Schedule, Trace, hold, simulate
from tasks.governor.cards import H100
from tasks.governor.events import Event, Kind

_SECONDS, _SMOOTH_S = 1500, 5
_COLORS = {
    "hardware only": "tab:red",
    "hysteresis 80/75": "tab:orange",
    "governor": "tab:blue",
    "optimum at 78": "black",
}
_DOCS = REPOSITORY / "docs"


def draw() -> None:
    hot_night(_DOCS / "governor-hot-night.png")
    energy(_DOCS / "governor-energy.png")


def afternoon() -> Scene:
    """An H100 whose heatsink is a third worse than usual: decode and prompts in turn, warmer air from minute 6 on, fans that
    fail in part from minute 12 on."""
    loads = [(0, 0.0), (120, 1.0), (300, 0.3), (420, 1.0), (660, 0.0), (780, 1.0), (1080, 0.6), (1200, 0.0), (1290, 1.0)]
    events = [Event(Kind.LOAD, float(at), size=share) for at, share in loads]
    events += [Event(Kind.INLET_STEP, 360.0, size=8.0), Event(Kind.FAN, 720.0, size=1.3)]
    card = replace(H100, sink_r=H100.sink_r * 1.35, sink_tau_s=H100.sink_tau_s * 1.35, prefill_share=1.12)
    return Scene([card], [events], _SECONDS, np.array([26.0]))


def hot_night(path: Path) -> None:
    scene = afternoon()
    traces: dict[str, Trace] = {}
    for name in _COLORS:
        work = Schedule(scene)
        run = hold(scene, SET_POINT_C, work) if name.startswith("optimum") else simulate(scene, CONTROLLERS[name], work)
        traces[name] = run[1]
    figure = Figure(figsize=(10, 9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(4, 1, sharex=True, height_ratios=(3, 2, 2, 2))
    minutes = np.arange(_SECONDS) / 60
    rows = ("die, °C", "SM clock, MHz", "power, W", "tokens/s, thousands")
    for name, trace in traces.items():
        values = (trace.die_c, trace.clock_mhz, trace.power_w, trace.tokens / 1000)
        for axis, column in zip(axes, values, strict=True):
            style = (0, (4, 4)) if name.startswith("optimum") else "-"
            axis.plot(minutes, _smooth(column[:, 0]), color=_COLORS[name], label=name, linewidth=1.2, linestyle=style)
    axes[0].axhline(LINE_C, color="black", linewidth=0.8, linestyle="--")
    axes[0].axhline(SET_POINT_C, color="black", linewidth=0.8, linestyle=":")
    axes[0].text(0.1, LINE_C + 0.4, "the line, 80 °C", fontsize=8)
    axes[0].text(0.1, SET_POINT_C - 2.4, "set point, 78 °C", fontsize=8)
    for at, words in ((6, "air + 8 °C"), (12, "fans: resistance x 1.3")):
        axes[0].axvline(at, color="gray", linewidth=0.8)
        axes[0].text(at + 0.1, 41, words, fontsize=8)
    for axis, words in zip(axes, rows, strict=True):
        axis.set_ylabel(words)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(40, None)
    axes[0].legend(loc="lower right", fontsize=8)
    axes[0].set_title("One hot afternoon of a simulated H100: decode and prompts in turn (means of 5 s)")
    axes[-1].set_xlabel("minutes")
    figure.savefig(path, dpi=90)


def energy(path: Path, per_group: int = 10) -> None:
    of = deadlines.nights(per_group, seed=2020)
    of = deadlines.with_deadlines(of, deadlines.full_speed_s(of))
    of = replace(of, scene=replace(of.scene, seconds=int(of.deadline_s.max()) + 2))
    names = {"hysteresis 76/72": "tab:orange", "governor": "tab:blue", ORACLE: "tab:green"}
    none = deadlines.run_nights(of, "hardware only").energy_j
    shares = {name: deadlines.run_nights(of, name).energy_j / none for name in names}
    groups = [(mix, slack) for mix in MIXES for slack in SLACKS]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    at = np.arange(len(groups))
    for column, (name, color) in enumerate(names.items()):
        rows = [shares[name][(of.mix == MIXES[mix]) & (of.slack == slack)] for mix, slack in groups]
        means = np.array([row.mean() for row in rows])
        ends = np.abs(np.array([(row.min(), row.max()) for row in rows]).T - means)
        drawn = axis.bar(
            at + 0.27 * (column - 1), means, 0.25, color=color, label=name, yerr=ends, error_kw={"linewidth": 0.7}
        )
        axis.bar_label(drawn, labels=[f"{mean:.2f}" for mean in means], label_type="center", fontsize=7, color="white")
    axis.axhline(1, color="tab:red", linewidth=1)
    axis.text(-0.45, 1.01, "full speed, then idle", fontsize=8, color="tab:red")
    axis.set_xticks(at, [f"{mix}\n{slack:.0%} slack" for mix, slack in groups], fontsize=8)
    axis.set_ylim(0, 1.2)
    axis.set_ylabel("energy by the deadline, of full speed")
    axis.set_title(
        f"The same work by the same time ({len(of.mix)} random simulated cards; bars: mean, lines: lowest and highest)"
    )
    axis.legend(loc="upper right", ncols=3, fontsize=8)
    figure.savefig(path, dpi=90)


def _smooth(values: Floats) -> Floats:
    padded = np.pad(values, _SMOOTH_S // 2, mode="edge")
    means: Floats = np.convolve(padded, np.full(_SMOOTH_S, 1 / _SMOOTH_S), mode="valid")
    return means
