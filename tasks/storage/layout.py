"""Where every file lives; the only place that knows. Paths come out, nothing is created."""

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

PART = "part-00000.parquet"
"""The one file of a run's table; beside it lie its checksums."""
_MAX_PARTITION_BYTES = 200


@dataclass(frozen=True, slots=True)
class Layout:
    """The two roots: `data` for what people read, `checkpoints` for what a resume reads."""

    data: Path
    checkpoints: Path

    @property
    def runs(self) -> Path:
        return self.data / "runs"

    @property
    def database(self) -> Path:
        return self.data / "nightbatch.duckdb"

    @property
    def speed(self) -> Path:
        """How fast the models' steps were on this machine's devices."""
        return self.data / "speed"

    @property
    def copies(self) -> Path:
        """Local copies of input from pipes and from elsewhere."""
        return self.data / "tmp" / "inputs"

    def dataset_manifest(self, dataset_id: str) -> Path:
        """Written last of a dataset's files: it exists when the dataset is whole."""
        return self.data / "requests" / "_datasets" / f"{dataset_id}.json"

    @property
    def parts(self) -> Path:
        """What is known of the parts of the two tables."""
        return self.data / "requests" / "_parts"

    def requests_part(self, ds: str, source: str, part_id: str) -> Path:
        return self._part("requests", ds, source, part_id)

    def rejects_part(self, ds: str, source: str, part_id: str) -> Path:
        return self._part("rejects", ds, source, part_id)

    def _part(self, table: str, ds: str, source: str, part_id: str) -> Path:
        return self.data / table / f"ds={ds}" / f"source={_partition(source)}" / f"{part_id}.parquet"

    def run(self, run_id: str) -> "Run":
        return Run(run_id, self.runs / run_id, self.checkpoints / run_id)


def _partition(source: str) -> str:
    """A source's name as a folder's; the tables have a column with the name itself. File systems allow 255 bytes."""
    quoted = quote(source, safe="")
    if len(quoted) <= _MAX_PARTITION_BYTES:
        return quoted
    return f"{quoted[:_MAX_PARTITION_BYTES]}-{blake2b(source.encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run's folders: `home` under data/runs, `journals` under checkpoints."""

    run_id: str
    home: Path
    journals: Path

    @property
    def manifest(self) -> Path:
        return self.home / "manifest.json"

    @property
    def speed(self) -> Path:
        """As in the layout; all runs add to it."""
        return self.home.parent.parent / "speed"

    @property
    def groups(self) -> Path:
        return self.home / "groups" / PART

    @property
    def prompts(self) -> Path:
        """The prompts in the groups' order; the plan names them by row."""
        return self.home / "groups" / "prompts.arrow"

    @property
    def plan(self) -> Path:
        return self.home / "plan" / PART

    @property
    def mix(self) -> Path:
        """The share of prefill along the plan."""
        return self.home / "plan" / "mix.json"

    @property
    def results(self) -> Path:
        return self.home / "results"

    @property
    def failures(self) -> Path:
        return self.home / "failures"

    @property
    def telemetry(self) -> Path:
        """The telemetry table, of many parts."""
        return self.home / "telemetry"

    @property
    def telemetry_spool(self) -> Path:
        """Rows of telemetry that are in no part yet."""
        return self.journals / "telemetry"

    @property
    def lock(self) -> Path:
        return self.journals / "lock"

    def engine_lock(self, engine: int) -> Path:
        return self.journals / f"engine-{engine}.lock"

    def engine_log(self, engine: int) -> Path:
        return self.journals / f"engine-{engine}.log"

    def engine_spec(self, engine: int) -> Path:
        return self.journals / f"engine-{engine}.json"

    def governor_spec(self, engine: int) -> Path:
        return self.journals / f"governor-{engine}.json"

    def governor_log(self, engine: int) -> Path:
        return self.journals / f"governor-{engine}.log"

    def engine_limit(self, engine: int) -> Path:
        """How many sequences it may run now."""
        return self.journals / f"engine-{engine}.limit"

    def engine_orders(self, engine: int) -> Path:
        return self.journals / f"engine-{engine}.orders.json"
