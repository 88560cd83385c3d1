"""What `perfdoctor bench` measures, saves and compares (`perfdoctor.benchmark/1`)."""

from typing import Literal

from msgspec import Struct

from perfdoctor.schema.report import ReportTarget
from perfdoctor.schema.summary import EnvironmentSummary
from perfdoctor.schema.workload import Workload

BENCHMARK_SCHEMA = "perfdoctor.benchmark/1"
"""What stands in the key `schema` of a saved benchmark."""


class LaunchRecord(Struct, frozen=True, kw_only=True):
    """One fresh process that trained until it was steady, and then for some seconds."""

    steps: int
    """Steps that were timed, each from its begin to the begin of the next one."""
    mean_ms: float
    median_ms: float
    p95_ms: float
    cpu_ms: float
    """CPU time of its process tree, in ms a step."""
    compiles: int
    """Programs compiled until it was steady."""
    compile_s: float
    """Tracing, lowering and compiling them."""
    first_step_s: float
    """From the launch until the second step began: the first one is dispatched then."""
    peak_rss_bytes: int
    """The most memory that its process tree held at once."""
    steady: bool
    """Whether it ceased to compile, and both halves of the timed steps agree."""
    other_cores: float
    """CPU time that everything else took meanwhile, over wall time."""
    throttled_ms: float
    """How long the cgroup's quota held its processes back meanwhile."""
    shape_ms: tuple[float, ...]
    """Means of consecutive steps: what a plot of them shows."""


class Metric(Struct, frozen=True, kw_only=True):
    """A number with its 95 % interval over launches, or without one if it was seen once."""

    name: str
    unit: str
    better: Literal["lower", "higher"]
    value: float
    low: float | None = None
    high: float | None = None


class Exact(Struct, frozen=True, kw_only=True):
    """What no noise touches: the same program has the same numbers in each run."""

    flops: float | None
    bytes_accessed: float | None
    """By XLA's accounts of the programs that a step runs, as it compiled them."""
    temp_bytes: int
    """Temporary memory of the program that needs most."""
    hlo: str
    """Hash of the optimised program that moves most bytes, without the names of files and lines."""
    compiles: int | None
    """Programs compiled until a launch was steady; None if launches differ in it."""
    dispatches: float
    """Jitted functions called a step, rounded to a hundredth."""
    programs: int | None = None
    """Runs of a program in a step, which `flops`, `bytes_accessed` and `temp_bytes` are of; None:
    they are of one program only, the one that moves most bytes."""


class Fingerprint(Struct, frozen=True, kw_only=True):
    """What must be the same for the numbers of two times to be comparable."""

    cpu: str
    cores: float
    """Cores that may be used: the affinity mask and the cgroup's quota count."""
    vector_sets: tuple[str, ...]
    accelerators: tuple[str, ...]
    driver: str | None
    python: str
    jaxlib: str
    variables: dict[str, str]
    """The environment variables that bear on performance: XLA_FLAGS, OMP_NUM_THREADS, …"""


class Source(Struct, frozen=True, kw_only=True):
    """The state of the git repository in which the target lies."""

    commit: str
    dirty: bool
    """Whether tracked files differ from the commit."""


class Recipe(Struct, frozen=True, kw_only=True):
    """What to run to measure the same again."""

    name: str | None
    """TARGET as it was given."""
    module: str | None
    arguments: tuple[str, ...]
    workload: Workload | None
    """All of it, seed included, if the target is one."""


class Compared(Struct, frozen=True, kw_only=True):
    """A metric of the candidate against the baseline; changes are relative: 0.05 is 5 % more."""

    name: str
    gated: bool
    """Whether its verdict decides; if not, it is only told."""
    verdict: Literal["regressed", "pass", "improved", "inconclusive"] | None
    """None: not gated."""
    change: float
    low: float
    high: float
    visible: float
    """The smallest slowdown that would have been found."""
    by_pair: tuple[float, ...] = ()
    """The change that each live pair showed."""
    control_by_pair: tuple[float, ...] = ()
    """The change from a baseline to a second launch of it, in the same pairs: noise alone."""


class ExactChange(Struct, frozen=True, kw_only=True):
    """Something that no noise touches and that is not as it was."""

    name: str
    before: float | str | None
    after: float | str | None


class Comparison(Struct, frozen=True, kw_only=True):
    """The candidate against a baseline."""

    against: str
    how: Literal["live pairs", "saved numbers"]
    threshold: float
    verdict: Literal["regressed", "pass", "improved", "inconclusive", "incomparable"]
    summary: str
    """The verdict in a sentence, with what would decide it if nothing did."""
    pairs: int
    seconds: float
    metrics: tuple[Compared, ...]
    exact: tuple[ExactChange, ...]
    causes: tuple[str, ...]
    """What the diagnoses of the two differ in."""


class LevelChange(Struct, frozen=True, kw_only=True):
    """A level of a metric that lasted, and the one that followed."""

    index: int
    """The place of the first result of the new level, counted from 0."""
    ratio: float
    """The new level divided by the old one."""


class Trend(Struct, frozen=True, kw_only=True):
    """A metric over the results that can be compared with the newest, the oldest first."""

    metric: str
    values: tuple[float, ...]
    created: tuple[str, ...]
    commits: tuple[str | None, ...]
    changes: tuple[LevelChange, ...]


class Benchmark(Struct, frozen=True, kw_only=True):
    """The whole measurement; every renderer reads this and nothing else."""

    schema: Literal["perfdoctor.benchmark/1"]
    perfdoctor: str
    created: str
    target: ReportTarget
    recipe: Recipe
    fingerprint: Fingerprint
    environment: EnvironmentSummary
    source: Source | None
    launches: tuple[LaunchRecord, ...]
    complete: bool
    """False while launches are still to come, or if it was interrupted."""
    metrics: tuple[Metric, ...]
    exact: Exact | None
    warnings: tuple[str, ...]
    """Why the numbers can't be trusted, if so."""
    comparison: Comparison | None = None
    trends: tuple[Trend, ...] = ()
    """How the metrics of its history changed, where a report is to show it; the saved results of a
    history do not hold it."""
