"""A card that is not there, in real time: a command runs that takes the simulated card behind the stub driver for a card.

    python -m tests.gpu.play --card H100 --load mix --event fan@20=1.6 -- nightbatch run ...

What the card went through is told at the end, on stderr, or as JSON in a file. It ends as the command does.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.governor.cards import CARDS
from tasks.governor.events import Event, Kind
from tasks.governor.rights import CAP_SYS_ADMIN, Rights, read_rights
from tasks.storage.limit import Limit
from tests.gpu.physics import LINE_C, Physics, Seen, as_stub, load
from tests.gpu.stub import CompilerMissingError, Stub

_AIR_AND_CARD = {
    "inlet": Kind.INLET_STEP,
    "ramp": Kind.INLET_RAMP,
    "fan": Kind.FAN,
    "writer": Kind.WRITER,
    "garbage": Kind.GARBAGE,
    "frozen": Kind.FREEZE,
    "stuck": Kind.STUCK,
    "lost": Kind.LOST,
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    asked, command = _parser().parse_args(given[:at]), given[at + 1 :]
    if not command:
        _parser().error("a command is missing: -- COMMAND ...")
    card = CARDS[asked.card]
    with TemporaryDirectory(prefix="nvml-") as folder:
        try:
            stub = Stub(Path(folder), [as_stub(card, asked.card)])
        except CompilerMissingError as error:
            print(f"play: {error}", file=sys.stderr)
            return 2
        stub.state.root = not asked.no_root
        events = [*load(asked.load), *asked.event]
        bound = _bound(asked.limit, asked.full) if asked.limit else lambda: 1.0
        with Physics(stub, [card], [events], inlet_c=asked.inlet, speed=asked.speed, bound=bound) as physics:
            code = _run(command, stub, may_set=not asked.no_root)
            physics.await_restored(asked.linger)
    (seen,) = physics.seen
    print(_told(asked.card, seen), file=sys.stderr)
    if physics.late_s > 0.5:
        print(f"play: the computer was busy: the card stood still for up to {physics.late_s:.1f} s", file=sys.stderr)
    if asked.report is not None:
        asked.report.write_text(json.dumps(asdict(seen), indent=2) + "\n")
    return code


def _run(command: Sequence[str], stub: Stub, *, may_set: bool) -> int:
    """The command's exit code; 128 and the signal's number if one killed it."""
    paths = [stub.environment["LD_LIBRARY_PATH"], os.environ.get("LD_LIBRARY_PATH", "")]
    environment = os.environ | stub.environment | {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends it to the command as well, which may take its time
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_stop.append(number))
    try:
        process = subprocess.Popen([*_with_rights(read_rights(), may_set=may_set), *command], env=environment)
    except OSError as error:
        print(f"play: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    while (code := process.poll()) is None:
        if asked_to_stop:
            process.send_signal(asked_to_stop.pop())
        time.sleep(0.02)
    return code if code >= 0 else 128 - code


def _with_rights(rights: Rights, *, may_set: bool) -> list[str]:
    """What to put before a command, so that it has the rights that the stub driver gives it, and no others."""
    has = bool(rights.capabilities >> CAP_SYS_ADMIN & 1)
    if has == may_set:
        return []
    if may_set and shutil.which("unshare"):
        return ["unshare", "--user", "--map-root-user", "--"]
    if not may_set and shutil.which("setpriv"):
        return ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]
    print("play: the command's own rights are not those asked for (no unshare, no setpriv)", file=sys.stderr)
    return []


def _bound(pattern: str, full: int) -> Callable[[], float]:
    """The share of a full batch that the newest limit file allows, where the engine is told how many sequences may run."""

    def share() -> float:
        files = sorted(glob(pattern, recursive=True), key=os.path.getmtime)
        return min(Limit(Path(files[-1])).max_num_seqs() / full, 1.0) if files else 1.0

    return share


def _told(name: str, seen: Seen) -> str:
    clock = "none" if seen.lowest_clock_mhz is None else f"{seen.lowest_clock_mhz} MHz"
    limit = "none" if seen.lowest_limit_w is None else f"{seen.lowest_limit_w:g} W"
    sets = ", ".join(f"{number} {call}" for call, number in sorted(seen.sets.items())) or "nothing"
    return (
        f"{name} for {seen.seconds:.0f} s: at most {seen.peak_c:.1f} °C ({seen.above_line_s:.1f} s above {LINE_C:g}), "
        f"at most {seen.peak_w:.0f} W, {seen.energy_j / 1000:.1f} kJ, {seen.work_s:.1f} s of full work; "
        f"lowest lock {clock}, lowest limit set {limit}; calls that set: {sets}; "
        f"{'put back as it was' if seen.is_put_back else 'NOT put back'}"
    )


def _event(text: str) -> Event:
    """KIND@AT, KIND@AT+FOR, each with =SIZE: fan@20+60=1.6 is from 20 s on for 60 s."""
    try:
        when, _, size = text.partition("=")
        kind, _, span = when.partition("@")
        at, _, for_s = span.partition("+")
        return Event(_AIR_AND_CARD[kind], float(at), float(for_s or "inf"), float(size or 0))
    except (KeyError, ValueError):
        kinds = ", ".join(_AIR_AND_CARD)
        raise argparse.ArgumentTypeError(f"{text!r} is not KIND@AT[+FOR][=SIZE] with one of {kinds}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.play", usage="%(prog)s [options] -- COMMAND ...")
    parser.add_argument("--card", choices=sorted(CARDS), default="H100")
    parser.add_argument("--load", choices=("idle", "prefill", "decode", "mix"), default="mix", help="while it runs")
    parser.add_argument("--inlet", type=float, default=25.0, metavar="C", help="temperature of the air, °C")
    parser.add_argument("--event", type=_event, action="append", default=[], metavar="KIND@AT[+FOR][=SIZE]")
    parser.add_argument("--speed", type=float, default=1.0, help="how much faster than the clock heat and load move")
    parser.add_argument("--limit", metavar="GLOB", help="files that say how many sequences may run; the newest counts")
    parser.add_argument("--full", type=int, default=256, help="how many sequences are a full batch")
    parser.add_argument("--linger", type=float, default=3.0, metavar="S", help="how long to wait for it to be put back")
    parser.add_argument("--no-root", action="store_true", help="the command may set nothing")
    parser.add_argument("--report", type=Path, metavar="FILE", help="what the card went through, as JSON")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
