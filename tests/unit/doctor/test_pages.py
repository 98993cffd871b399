"""The other pages, and the doctor as a whole."""

import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
from rich.console import Console

from tasks.doctor import examine as whole
from tasks.doctor.answering import models
from tasks.doctor.examine import examine
from tasks.doctor.finding import Finding, Fitness, State, ok, problem, warning
from tasks.doctor.gpu import Cards, judge_cards, leases
from tasks.doctor.look import look_at_cards
from tasks.doctor.orchestration import configured_url, prefect
from tasks.doctor.report import rendered
from tasks.engine.models import whereabouts_of_model
from tasks.governor.lease import lease_path, new_lease, write_lease
from tasks.governor.sample import Card, Sample, Throttle
from tasks.storage.layout import Layout

CARD = Card(
    "GPU-1",
    "H100",
    0,
    "550.90",
    80 * 10**9,
    (345, 1980),
    default_w=700,
    min_w=200,
    max_w=700,
    slowdown_c=89,
    memory_max_c=95,
)


# The model


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No look at the user's caches or the network; the folder of the caches."""
    monkeypatch.setenv("NIGHTBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_default_model_is_not_unpacked_by_a_look(private: Path) -> None:
    """It is found where it was installed, and the cache stays as empty as it was; so is the encoder."""
    model, encoder = models("SmolLM2-135M-Instruct", "all-MiniLM-L6-v2")
    assert (model.state, encoder.state) == (State.OK, State.OK)
    assert "unpacked by the first run" in model.what
    assert not (private / "cache").exists()


def test_models_that_are_elsewhere(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is found; a name that nobody has is a problem without the hub and a download with it; an encoder that is not
    there is a warning, as most runs need none."""
    (private / "mine").mkdir()
    (private / "mine" / "config.json").write_text("{}")
    assert whereabouts_of_model("./mine") == private / "mine"
    assert [one.state for one in models("./mine", "./nothere")] == [State.OK, State.WARNING]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (missing, _) = models("some/model", "all-MiniLM-L6-v2")
    assert missing.state is State.PROBLEM
    assert "HF_HUB_OFFLINE is set" in missing.what
    monkeypatch.delenv("HF_HUB_OFFLINE")
    (remote, _) = models("some/model", "all-MiniLM-L6-v2")
    assert (remote.state, remote.remedy) == (State.WARNING, "hf download some/model")
    assert next(models("echo:0.1", "./mine")).state is State.OK


# The GPU


def found(card: Card = CARD, sample: Sample | None = Sample(0.0)) -> list[Finding]:  # noqa: B008  frozen
    return list(judge_cards(Cards([(card, sample)])))


def test_no_card_is_said_plainly() -> None:
    """With the reason; it is no fault."""
    (line,) = judge_cards(Cards(reason="no driver (libnvidia-ml.so.1 is not there)"))
    assert (line.state, line.remedy) == (State.OK, "")
    assert line.what.startswith("no GPU: no driver (libnvidia-ml.so.1 is not there); the engine computes on the CPU")
    (line, *_) = judge_cards(Cards([(CARD, Sample(0.0))], "card 1 does not answer"))
    assert (line.state, "card 1 does not answer" in line.what) == (State.WARNING, True)


def test_a_sound_card() -> None:
    """What it is and what may be set, and nothing else."""
    about, rights = found()
    assert (
        about.what
        == "0: H100, 80 GB, driver 550.90, 700 W (200 to 700), up to 1,980 MHz, slows down at 89 °C, memory up to 95 °C"
    )
    assert "may set its clock and its power limit" in rights.what


def test_missing_rights_are_told_once() -> None:
    """Each reason once, and no warning: observing needs none."""
    card = Card("GPU-1", "A10G", 1, "550", 24 * 10**9, no_clock="it needs root", no_power="it needs root")
    (_, rights) = found(card)
    assert rights.what == "1: A10G: the governor sets nothing and bounds sequences in flight: it needs root"
    (_, rights) = found(Card("GPU-1", "A10G", 1, "550", 24 * 10**9, no_power="not supported"))
    assert "may set its clock and bounds sequences in flight: not supported" in rights.what


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (None, "cannot be read now"),
        (Sample(0.0, throttle=Throttle.HW_THERMAL | Throttle.GPU_IDLE), "slows itself down (hw_thermal)"),
        (Sample(0.0, memory_used_bytes=70 * 10**9), "70.0 of 80 GB are in use"),
        (Sample(0.0, ecc_errors=3), "3 uncorrected memory errors"),
        (Sample(0.0, xid=79), "Xid 79"),
        (Sample(0.0, requested_w=400), "its power limit is 400 W, below its default of 700"),
    ],
)
def test_a_card_with_a_fault(sample: Sample | None, words: str) -> None:
    """Each fault is one warning with a remedy."""
    (line,) = [one for one in found(sample=sample) if one.state is not State.OK]
    assert words in line.what
    assert line.remedy


def test_the_recipe_is_given_once() -> None:
    """Two cards and a process that may set nothing: one line with what to do, and no warning."""
    lines = list(judge_cards(Cards([(CARD, Sample(0.0)), (CARD, Sample(0.0))]), "it needs CAP_SYS_ADMIN"))
    assert {one.state for one in lines} == {State.OK}
    (line,) = [one for one in lines if one.remedy]
    assert (line.what, "AmbientCapabilities" in line.remedy) == (
        "the governor may set no clock and no power limit: it needs CAP_SYS_ADMIN",
        True,
    )
    assert list(judge_cards(Cards(), "it needs CAP_SYS_ADMIN"))[-1].remedy == ""


def test_a_driver_that_hangs_or_fails() -> None:
    """Nobody waits for it; it is a problem, as an engine would hang in it as well."""
    hung = look_at_cards([sys.executable, "-c", "input()"], 0.0)
    assert (hung.found, hung.reason) == ((), "the driver did not answer within 0 s")
    failed = look_at_cards([sys.executable, "-c", "raise SystemExit('Segmentation fault')"], 60.0)
    assert failed.reason == "the look at the driver failed: Segmentation fault"
    for cards in (hung, failed):
        (line,) = judge_cards(cards)
        assert (line.state, line.what) == (State.PROBLEM, cards.reason)


def test_a_look_that_cannot_even_begin(tmp_path: Path) -> None:
    """Where no process can be started the page says so, and the others are there."""

    def look() -> Cards:
        raise OSError(11, "Resource temporarily unavailable")

    found = examine(Layout(tmp_path, tmp_path), model="echo", look=look)
    (line,) = [one for one in found.of(State.PROBLEM) if one.page == "gpu"]
    assert "Resource temporarily unavailable" in line.what


def test_leases(tmp_path: Path) -> None:
    """One of a living run, one of a dead one, one that is damaged; a folder without any says nothing."""
    assert list(leases(tmp_path / "nothere")) == []
    mine = new_lease(CARD, None)
    write_lease(lease_path(tmp_path, "GPU-1"), mine)
    write_lease(lease_path(tmp_path, "GPU-2"), replace(mine, uuid="GPU-2", started=mine.started - 1))
    lease_path(tmp_path, "GPU-3").write_text("{")
    living, dead, damaged = leases(tmp_path)
    assert [one.state for one in (living, dead, damaged)] == [State.OK, State.WARNING, State.WARNING]
    assert living.what.startswith("GPU-1 is governed by process")
    assert (dead.what.split()[0], dead.remedy.partition(";")[0]) == ("GPU-2", "nightbatch power restore")
    assert "is damaged" in damaged.what


# Prefect


def test_where_the_server_is_configured(tmp_path: Path) -> None:
    """The environment goes before the project's file, and that before the active profile."""
    assert configured_url({"PREFECT_HOME": str(tmp_path)}, tmp_path) == (None, "")
    (tmp_path / "profiles.toml").write_text('active = "night"\n[profiles.night]\nPREFECT_API_URL = "http://c/api"\n')
    home = {"PREFECT_HOME": str(tmp_path)}
    assert configured_url(home, tmp_path) == ("http://c/api", "profile night")
    assert configured_url(home | {"PREFECT_PROFILE": "day"}, tmp_path) == (None, "")
    (tmp_path / "prefect.toml").write_text('[api]\nurl = "http://b/api"\n')
    assert configured_url(home, tmp_path) == ("http://b/api", "prefect.toml")
    assert configured_url(home | {"PREFECT_API_URL": "http://a/api"}, tmp_path) == ("http://a/api", "PREFECT_API_URL")


def test_no_server_is_no_fault(tmp_path: Path) -> None:
    """Runs without Prefect are what most people do, in the project's folder as well, whose file names a server; a broken
    file of settings is a warning."""
    home = {"PREFECT_HOME": str(tmp_path)}
    assert next(prefect(home, tmp_path)).state is State.OK
    (tmp_path / "prefect.toml").write_text('[api]\nurl = "http://127.0.0.1:9/api"\n')
    (line,) = prefect(home, tmp_path, lambda url: "refused")
    assert (line.state, line.remedy) == (State.OK, "prefect server start (docs/prefect.md)")
    (tmp_path / "prefect.toml").write_text("[api")
    assert next(prefect(home, tmp_path)).state is State.WARNING


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        codes = {"/well/health": 200, "/guarded/health": 401, "/ill/health": 503}
        self.send_response(codes.get(self.path, 404))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


def test_a_server_is_asked(tmp_path: Path) -> None:
    """One that answers is well, also one that wants a key; another error, and nobody at all, are warnings."""
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        said = {name: next(prefect({"PREFECT_API_URL": f"{root}/{name}"}, tmp_path)) for name in ("well", "guarded", "ill")}
        server.shutdown()
    assert [one.state for one in said.values()] == [State.OK, State.OK, State.WARNING]
    assert "HTTP 503" in said["ill"].what
    gone = next(prefect({"PREFECT_API_URL": f"{root}/well"}, tmp_path))
    assert (gone.state, "refused" in gone.what) == (State.WARNING, True)


# All of it


def test_verdicts() -> None:
    """A problem makes the machine unfit and the exit code 1; warnings do not."""
    fit = Fitness((ok("a", "x"), warning("b", "y", "do")))
    assert (fit.exit_code, fit.to_dict()["fit"], fit.to_dict()["warnings"]) == (0, True, 1)
    unfit = Fitness((*fit.findings, problem("c", "z", "now")))
    assert (unfit.exit_code, unfit.to_dict()["problems"]) == (1, 1)
    assert unfit.to_dict()["findings"][2] == {"page": "c", "state": "problem", "what": "z", "remedy": "now"}
    console = Console(record=True, width=80, file=StringIO())
    console.print(rendered(unfit))
    text = " ".join(console.export_text().split())
    assert "problem c z -> now" in text
    assert text.endswith("not fit for runs: 1 problem, 1 warning")


def test_a_page_that_fails_does_not_take_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a sick machine a look may fail; that is said, and all other pages are there."""

    def ill() -> list[Finding]:
        raise OSError(5, "Input/output error", "/proc/meminfo")

    monkeypatch.setattr(whole, "memory", ill)
    found = examine(Layout(tmp_path, tmp_path), model="echo", look=lambda: Cards(reason="no driver"))
    (line,) = [one for one in found.findings if one.page == "memory"]
    assert (line.state, "Input/output error" in line.what) == (State.WARNING, True)
    pages = list(dict.fromkeys(one.page for one in found.findings))
    assert pages == ["software", "model", "disk", "memory", "processor", "clock", "gpu", "prefect"]
