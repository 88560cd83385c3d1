"""The steps of a run, as they were seen in a traced window; times are in the unit that the field's
name says.
"""

from msgspec import Struct

from perfdoctor.schema.run import Handed, Place

ENDED_EARLY = "the run ended before it was steady; give it more steps"
"""Why something of a run is not known, of which no window was traced."""
UNREAD = "the budget ended before its trace was read; give it more"
"""Why something is not known, where a trace was too large."""


class Steps(Struct, frozen=True, kw_only=True):
    """The training steps of the traced window; times are means over its steps, as they would be
    without the trace as far as that could be told (`slowed`). Of a run that ended before, or whose
    trace was not read: those whose calls were seen.

    A step's time is divided once by what the device did and, where it was idle, by what the main
    thread did: `device_busy_ms` + the six `exposed_*` parts = `time_ms`.
    """

    # Which steps they are, and when they were seen.
    function: str
    """The jitted function whose repeated dispatch makes the steps."""
    count: int
    left_out: int
    """Steps of the window not counted, since something compiled in them."""
    is_traced: bool = True
    """Whether a window was traced, and read; else all is told by its jitted calls: nothing of
    loading, waiting, or what the device did when."""
    why_untraced: str = ENDED_EARLY
    """Why not, where it was not."""
    batch_size: int | None
    """Examples of one call of `function`."""
    samples_per_s: float | None
    began_s: float = 0.0
    """When the window was opened, seconds after the start of the run."""
    window_s: float = 0.0
    """How long it was open."""
    threads: int = 1
    """Threads that call the function; with more than one, a step is one call by any of them."""
    call_ms: float = 0.0
    """With more than one thread: from the begin of a thread's call to the begin of its next."""

    # How long a step takes.
    time_ms: float
    median_ms: float
    p95_ms: float
    standard_error_ms: float
    """The standard error of the mean, from ten consecutive blocks, so that slow drifts count."""
    slowed: float = 1.0
    """Times that the steps took longer for being traced; all times here are without that."""
    outliers: int = 0
    """Steps that took more than three times the median: evaluations, checkpoints, hiccups."""
    outlier_share: float = 0.0
    """The share of the steps' whole time that the outliers take."""

    # Where its time goes: what the device did, and where it idled, the main thread.
    device_busy_ms: float
    exposed_etl_ms: float
    """The device idle, the main thread in data loading."""
    exposed_dispatch_ms: float
    exposed_wait_ms: float
    """The device idle, the main thread waiting for a result."""
    exposed_gc_ms: float
    exposed_logging_ms: float = 0.0
    """The device idle, the main thread writing logs or checkpoints."""
    exposed_other_ms: float
    exposed_operations_ms: float = 0.0
    """The part of `exposed_other_ms` in Python of jax, or of a library on it: around operations
    that the main thread dispatches, or results that it reads."""

    exposed_sleep_ms: float = 0.0
    """The part of `exposed_other_ms` in lines of the program that sleep."""

    # What the main thread does, whether the device is busy or not; and where in the program.
    etl_ms: float
    """The main thread in data loading, whether the device was busy or not."""
    dispatch_ms: float
    wait_ms: float
    gc_ms: float
    reading_ms: float = 0.0
    """The main thread in functions that wait for results, while it does not wait: work on them."""
    cpu_ms: float
    """CPU time of the whole process tree a step."""
    waits: float = 0.0
    """Times a step that the main thread waited for a result, or read one."""
    waiting_steps: float | None = None
    """The share of steps in which it did so: a program that reads all losses of an epoch at once
    waits in one step of many. Older observations do not have it."""
    waits_in: str = ""
    """The library in whose own code most of the waiting is, other than jax."""
    etl_places: tuple[Place, ...] = ()
    wait_places: tuple[Place, ...] = ()
    logging_places: tuple[Place, ...] = ()
    other_places: tuple[Place, ...] = ()
    sleep_places: tuple[Place, ...] = ()

    # What is called.
    dispatches: float
    """Jitted functions called by the main thread a step."""
    calls: dict[str, float] = {}
    """Calls a step by jitted function, the commonest first."""
    callbacks: float = 0.0
    """Host callbacks a step."""
    callback_ms: float = 0.0
    """What they took a step, in all threads."""

    # What the device computes and copies.
    work: dict[str, float] = {}
    """By jitted function: its share of the bytes that all of them move, in the window."""
    work_ms: dict[str, float] = {}
    """By jitted function: its part of `device_busy_ms`; told on the CPU only, not by jax 0.8."""
    convolution_ms: float | None = None
    """The part of `device_busy_ms` that convolutions take, and what is fused with them; told where
    `work_ms` is."""
    operations: float = 0.0
    """Operations (on a GPU: kernels) a step; not told by jax 0.8 on the CPU."""
    copy_ms: float = 0.0
    """What the device's plain copies took a step; not told by jax 0.8 on the CPU."""
    busy_shares: tuple[float, ...] = ()
    """By device, in the order of their ids: the share of the time in which it computed."""
    uploads: float = 0.0
    """Host arrays a step that were copied to a device as arguments of jitted functions."""
    upload_ms: float = 0.0
    """What these copies took a step, in all threads."""
    long_upload_ms: float = 0.0
    """The part of it in copies that took a quarter as long as the longest, or more: of an array
    that is four times as large as all others, its own."""
    handed: tuple[Handed, ...] = ()
    """Large host arrays that are handed over outside of the step's calls, again and again."""

    @property
    def handed_again(self) -> tuple[Handed, ...]:
        """Those of `handed` that are no new data."""
        return tuple(each for each in self.handed if each.is_no_new_data)

    @property
    def idle_ms(self) -> float:
        """What of a step the device idles."""
        return max(0.0, self.time_ms - self.device_busy_ms)

    @property
    def synchronized(self) -> float:
        """The share of steps in which the main thread waits for a result, as far as known."""
        return min(1.0, self.waits) if self.waiting_steps is None else self.waiting_steps
