"""Aids for debugging that JAX, XLA and Python know, and what each costs."""

import re

SEARCHED = "the results of each call are fetched and searched"
LOGGED = "it writes a line for each transfer"
"""What a costly setting does, in words."""
NO_JIT = "jax_disable_jit"
"""The setting that switches off `jax.jit`. If it is on while the program trains, no measurement is
needed: nothing of what makes JAX fast is left."""
COSTLY = {
    "jax_debug_nans": SEARCHED,
    "jax_debug_infs": SEARCHED,
    NO_JIT: "nothing is jitted, each operation runs by itself",
    "jax_debug_key_reuse": "each call with a random key is checked",
    "jax_disable_most_optimizations": "XLA leaves the program nearly as it is written",
    "jax_transfer_guard": LOGGED,
    "jax_transfer_guard_host_to_device": LOGGED,
    "jax_transfer_guard_device_to_host": LOGGED,
    "jax_transfer_guard_device_to_device": LOGGED,
}
"""Settings that slow each step, and how."""
WHILE_COMPILING = (
    "jax_enable_checks",
    "jax_check_tracer_leaks",
    "jax_log_compiles",
    "jax_log_checkpoint_residuals",
    "jax_distributed_debug",
    "jax_debug_log_modules",
)
"""Settings that cost nothing once everything is compiled."""
LEAKS = "jax_check_tracer_leaks"
"""The one of them with which jax passes over some of its caches (jax/_src/util.py, `cache`), so
that small functions of its own may be compiled again in each step."""
CHECKIFY = "checkify"
CHECKED = "whether each operation's results or indices are wrong is computed beside them"
"""Checks that the step's own function makes, by `jax.experimental.checkify`."""
OFF = (False, None, 0, "", "0", "false", "allow", "disallow", "disallow_explicit", "off")
"""A transfer guard that forbids costs nothing: it raises."""
SLOW_FLAG = re.compile(
    r"--xla_(hlo_profile|dump_hlo_(unoptimized_)?snapshots|disable_all_hlo_passes"
    r"|llvm_disable_expensive_passes)(=(true|1))?|--xla_backend_optimization_level=[012]"
)
"""Flags of XLA that make a compiled program slow."""
DUMP_FLAG = re.compile(r"--xla_dump_\w+(=(?!false$|0$).*)?")
"""Flags of XLA that write files for each program, unless they are switched off."""
PYTHON = {
    "PYTHONDEVMODE": re.compile(r".+"),
    "PYTHONTRACEMALLOC": re.compile(r"[1-9]\d*"),
    "PYTHONMALLOC": re.compile(r"\w*debug"),
}
"""Environment variables of Python, and the values of each that switch on an aid for debugging."""
