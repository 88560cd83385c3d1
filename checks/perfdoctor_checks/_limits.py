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
LARGE_BATCH = 512
"""Four times what the guide begins with: a choice to look at."""
KERNEL, CHANNELS, DENSE, CLASSES, PIXELS = 7, 1024, 2048, 10_000, 600
USUAL_KERNEL = 3
IMAGE_AXES, COLOURS = 4, 4
"""Of a batch of images, in either order; with transparency."""
TRIPS, DEPTH, DENSE_DEPTH = 500, 100, 20
"""Steps of a recurrence; layers; dense layers with nothing else between."""

GIB = 2**30
MINUTE_S = 60.0

# ---- the hardware's, and the libraries' ----
GPU_TILE, TPU_TILE = 8, 128
"""NVIDIA's and Google's multiples."""
CACHE_THRESHOLD_S = 1.0
"""jax_persistent_cache_min_compile_time_secs, if nobody sets it."""
GENEROUS = 16 * 2**20
"""Bytes: half of the most to which glibc's malloc raises its threshold by itself."""
LIMIT_OF_WORKERS, LIMIT_OF_DEVICES = 256, 4096
"""Threads, processes and devices that a workload may have."""

# ---- of a launch: what a cache must save to be worth a finding ----
LAUNCH_S, LAUNCH_SHARE = 5.0, 0.1

# ---- ours ----
LEAST_SHARE = 0.03
"""Of a step: a loss of less is not worth a word, since no fix that gains less is told."""
SLIGHT = 0.05
"""Of the cores, of a device's time, of a memory: what a machine at rest takes too."""
GOOD_PART = 0.25
"""Of the work, of the window, of the state: enough to be a matter of the whole."""
MOSTLY = 0.5
"""The larger part: of the steps that wait, of a pass's work, of what others take."""
FEW = 3
"""Compilations of one function: a first step with weak types and a smaller last batch make two."""
SEVERAL = 4
"""Samples that rise, threads for each core, pieces of a memory: with fewer it is by chance."""
HANDFUL = 8
"""Jitted functions of a step, equal layers from one line, loops compiled in passing, examples of a
request: up to so many are a style."""
FEWEST_OPERATIONS = 6
"""A program of fewer is one operation that was called outside of `jax.jit`, not a step."""
MIB = 2**20
"""Bytes a step, or in 100 steps: less is copied in microseconds, and fits every cache."""
CACHES = 64 * MIB
"""Bytes: more than the last cache of most servers holds, of which a process seldom has all."""
BURST_S = 0.5
"""Of compilations: the first evaluation, or the end of a run, is over sooner."""
GOES_ON_S = 5.0
"""Compilations that lie over less time may all be a set-up's."""
FUSED = 0.95
"""Of what elementwise operations take by themselves, what a compiled step saves by fusing them into
their neighbours; the rest is reading what it needs and writing what it returns."""
FALLS = 0.1
"""Of what arrays grow by: some of the same shape are on their way through a step (23, 29, 33, 34,
38, 37, 39 in one of six runs of the sample memory_leak)."""
SOON_S = 3600.0
"""A training run of unknown length lasts an hour at least."""
FORCED_SWITCHES = 200
"""A second and core: near what the kernel's time slices of 3 ms allow at most."""
MOST_SLOWED = 5.0
"""Times that steps take longer for being traced, 1 to 5 in nearly all scripts; with more, the
window alone is asked, which tells less of a loss, not more."""
RECURRING = 0.1
"""Of compilations for shapes that come back, what a long run still pays at least: a script whose
batches are as long as their longest text shows 1.0 in its first half minute, and 0.1 at last."""
CLOCK = 0.6
"""Of a CPU's highest: with all cores busy a server's turbo falls to two thirds."""
TRIED_S = 60.0
"""A launch is tried seven times from start to end: longer ones are not."""
