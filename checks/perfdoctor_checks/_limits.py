"""The numbers that checks decide by, all in one place.

A finding is decided by what was measured: a fix that was tried, on the program or on its step
alone, and gained as much as it must. The numbers below only say what is looked at, and bound what
is estimated where nothing could be tried. `tests/checks/test_limits.py` keeps them here, and few.

Those of the guide are Deeplearning4j's ("Performance debugging"); those of the hardware its
makers'. The others were chosen while the scripts of `tests/clinic` were examined
(`python -m tests.clinic.run`), and have never been fitted to a half of them.
"""

# ---- the guide's ----
SMALLEST_GOOD_BATCH = 32
"""Examples a step."""
BATCHES = (32, 64, 128, 256)
"""Sizes to try: 32 to 128 to begin with, and one beyond."""
ALL_BATCHES = tuple(SMALLEST_GOOD_BATCH * 2**power for power in range(10))
"""Of batches that can be made in any size; a sweep ends where one gains nothing."""
LARGE_BATCH = 512
"""Four times what the guide begins with: a choice to look at."""
KERNEL, CHANNELS, DENSE, CLASSES, PIXELS = 7, 1024, 2048, 10_000, 600
"""The guide's bounds of a layer's kernel, channels, width and classes, and of an image's pixels."""
USUAL_KERNEL = 3
"""The size of kernel that most networks have."""
IMAGE_AXES, COLOURS = 4, 4
"""Axes of a batch of images, in either order; colours of a picture, transparency included."""
TRIPS, DEPTH, DENSE_DEPTH = 500, 100, 20
"""Steps of a recurrence; layers; dense layers with nothing else between them."""

GIB = 2**30
"""Bytes of a GiB."""
MINUTE_S = 60.0
"""Seconds of a minute."""

# ---- the hardware's, and the libraries' ----
GPU_TILE, TPU_TILE = 8, 128
"""Sizes of which NVIDIA's and Google's hardware multiplies whole multiples at once."""
CACHE_THRESHOLD_S = 1.0
"""Seconds of compilation from which on jax's persistent cache keeps a program:
jax_persistent_cache_min_compile_time_secs, if nobody sets it."""
GENEROUS = 16 * 2**20
"""Bytes: half of the highest threshold that glibc's malloc sets by itself."""
LIMIT_OF_WORKERS, LIMIT_OF_DEVICES = 256, 4096
"""Threads or processes, and devices, that a workload may have."""

# ---- of a launch ----
LAUNCH_S, LAUNCH_SHARE = 5.0, 0.1
"""Seconds of each launch, and the share of a run, that a cache must save to be worth a finding."""

# ---- ours ----
LEAST_SHARE = 0.03
"""The share of a step below which a loss is not worth a word, since no fix that gains less is
reported."""
SLIGHT = 0.05
"""The share of the cores, of a device's time or of a memory that is taken on a machine at rest,
too."""
GOOD_PART = 0.25
"""The share of the work, of the window, of the state or of a core from which on something concerns
the whole."""
MOSTLY = 0.5
"""The share that is the larger part: of the steps that wait, of a pass's work, of what others
take."""
FEW = 3
"""Compilations of one function that are usual: a first step with weak types, and a smaller last
batch, make two."""
SEVERAL = 4
"""Samples that rise, threads for each core, pieces of a memory: fewer may be there by chance."""
HANDFUL = 8
"""Jitted functions of a step, equal layers from one line, loops compiled in passing, examples of a
request: so many are a matter of style."""
FEWEST_OPERATIONS = 6
"""Operations of a program: one with fewer is an operation that was called outside of `jax.jit`, and
no step."""
MIB = 2**20
"""Bytes in a step, or in 100 steps: less is copied in microseconds, and fits every cache."""
CACHES = 64 * MIB
"""Bytes that the last cache of most servers can't hold, of which a process seldom has all."""
BURST_S = 0.5
"""Seconds over which compilations last at least to be more than the first evaluation or the end of
a run."""
GOES_ON_S = 5.0
"""Seconds over which compilations last at least to be more than a set-up."""
FUSED = 0.95
"""The share of what elementwise operations take by themselves that a compiled step saves by fusing
them into their neighbours; the rest is reading what it needs and writing what it returns."""
FALLS = 0.1
"""The share of arrays' growth by which their number may fall in between: some of the same shape are
on their way through a step (23, 29, 33, 34, 38, 37, 39 in one of six runs of the sample
memory_leak)."""
SOON_S = 3600.0
"""Seconds that a training run of unknown length is expected to last at least."""
FORCED_SWITCHES = 200
"""Forced switches of a core's thread in a second: near what the kernel's time slices of 3 ms allow
at most."""
MOST_SLOWED = 5.0
"""The factor by which a trace makes steps longer at most: 1 to 5 in nearly all scripts. With more,
the window alone is asked, which tells less of a loss, not more."""
RECURRING = 0.1
"""The share of compilations for shapes that come back which a long run still pays at least: a
script whose batches are as long as their longest text shows 1.0 in its first half minute, and 0.1
at last."""
CLOCK = 0.6
"""The share of a CPU's highest clock below which it is slow: with all cores busy a server's turbo
falls to two thirds."""
TRIED_S = 60.0
"""Seconds of a launch that is tried, seven times from start to end; longer ones are not."""
