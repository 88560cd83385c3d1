import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Outcome
from perfdoctor.schema.run import Compile
from perfdoctor_checks import recompilation
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

BEGAN_S, WINDOW_S = 10.0, 3.0
HEAD = "for step defined at /home/me/train.py:7\n  all previously seen cache keys differ. …\n  "
TYPES, TREE = f"{HEAD}different input types:\n  * ", f"{HEAD}different input pytree:\n  * "
STATIC = (
    "at input path {0}, now <class 'jax._src.tree_util.Static'> with pytree metadata "
    "Static(val={1}) and before <class 'jax._src.tree_util.Static'> with pytree metadata "
    "Static(val={2}), so the pytree node metadata does not match"
)
SHAPE = f"{TYPES}at inputs, now f32[33,8] and before f32[32,8]"
VALUE = TREE + STATIC.format("args[0]", 3, 2)
RATE = TREE + STATIC.format("[0][1]", 0.2, 0.1)
LONG = f"({'None, ' * 40}{{}}, 'a')"
IN_EQUINOX = (TREE + STATIC.format("[0][2]", "((None, 1.5), *)", "((None, 1.0), *)")).replace(
    "/home/me/train.py", "/site-packages/equinox/_jit.py"
)


def compiled(*at_s: float, function: str = "step", reason: str | None = SHAPE) -> list[Compile]:
    """A function compiled for 0.3 s each time."""
    return [
        Compile(function=function, seconds=0.3, at_s=at, backend_s=0.25, reason=reason)
        for at in at_s
    ]


def seen_with(*compiles: Compile, script: bool = True) -> Observation:
    """The healthy run, made up to have compiled this, with a window from 10 to 13 s."""
    seen = recorded("healthy")
    assert seen.steps is not None
    steps = replace(seen.steps, function="step", began_s=BEGAN_S, window_s=WINDOW_S)
    workload = None if script else seen.target.workload
    target = replace(seen.target, workload=workload)
    return replace(seen, steps=steps, compiles=tuple(compiles), target=target)


def again(reason: str | None) -> Outcome:
    """What is said of a step that recompiles all through the window, for this reason."""
    seen = seen_with(*compiled(5, 7, 9, 10.5, 11.5, 12.5, reason=reason))
    outcome = recompilation.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    return outcome


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_where_nothing_is_compiled_again(name: str) -> None:
    assert recompilation.check(recorded(name)).kind == "ok"


def test_finds_a_step_that_is_compiled_again_and_again() -> None:
    seen = recorded("recompilation")
    outcome = recompilation.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "static argument 4: 0.9" in outcome.summary


def test_the_reference_loops_decay_is_to_be_traced() -> None:
    fix = recompilation.check(recorded("recompilation")).fixes[0]
    assert fix.change is not None
    assert fix.change.workload == {"training.schedule": "traced"}


def test_without_steps_the_dominating_function_counts() -> None:
    seen = replace(recorded("recompilation"), steps=None)
    outcome = recompilation.check(seen)
    assert outcome.kind == "issue" and "as if in every step" in outcome.summary
    assert_sound(outcome, seen)


def test_a_workload_without_a_static_schedule_gets_the_general_advice() -> None:
    seen = seen_with(*compiled(5, 10.5, 11.5, 12.5), script=False)
    outcome = recompilation.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change == Change(step={"compiled": "once"})


def test_gain_is_what_the_window_lost() -> None:
    gain = again(SHAPE).gain
    assert gain is not None
    assert gain.high == pytest.approx(1 + 2 * (3 / (3 - 0.9) - 1))


def test_a_compilation_that_began_before_the_window_counts_in_part() -> None:
    seen = seen_with(*compiled(5, 6, 10.1, 11.5, 12.5))
    gain = recompilation.check(seen).gain
    assert gain is not None
    assert gain.high == pytest.approx(1 + 2 * (3 / (3 - 0.7) - 1))


def test_steps_that_the_trace_slows_down_lose_more_without_it() -> None:
    seen = seen_with(*compiled(5, 7, 9, 10.5, 11.5, 12.5, reason=None))
    assert seen.steps is not None
    gain = recompilation.check(replace(seen, steps=replace(seen.steps, slowed=3.0))).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(1 + (0.9 / 0.7))


def test_many_repeats_before_the_window_tell_what_is_lost_without_a_trace() -> None:
    before = [1 + 0.6 * number for number in range(15)]
    gain = recompilation.check(seen_with(*compiled(*before, 10.5, 11.5, 12.5, reason=None))).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(2)  # half of each 0.6 s


def test_a_burst_in_a_short_window_is_no_habit() -> None:
    """A run of 3 s that ends with an evaluation, and so does its window."""
    seen = seen_with(*compiled(1.0, 10.05, 10.15, 10.25, function="add"))
    assert seen.steps is not None
    short = replace(seen, steps=replace(seen.steps, window_s=0.3))
    assert recompilation.check(short).kind == "ok"


def test_a_burst_at_the_start_says_nothing_of_the_steps() -> None:
    burst = [1 + 0.31 * number for number in range(25)]
    seen = seen_with(*compiled(*burst, 11.5, reason=None))
    gain = recompilation.check(seen).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(1 + (0.3 / 2.7))


def test_shapes_come_back_so_less_is_sure_of_them() -> None:
    gain, other = again(SHAPE).gain, again(None).gain
    assert gain is not None and other is not None
    assert gain.low < other.low and gain.speedup < other.speedup
    assert gain.high == other.high


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (SHAPE, "inputs: shape f32[32,8] -> f32[33,8]"),
        (
            f"{TYPES}at params['w'], now f16[8,4] and before f32[8,4]",
            "params['w']: type f32[8,4] -> f16[8,4]",
        ),
        (
            f"{TYPES}at x, now f32[]{{weak_type=True}} and before f32[]{{weak_type=False}}"
            "https://docs.jax.dev/en/latest/type_promotion.html#weak-types",
            "x: type f32[] -> weak f32[]",
        ),
        (
            f"{SHAPE}\n  * at labels, now i32[33] and before i32[32]\n"
            "  * at mask, now i32[33] and before i32[32]",
            "inputs: shape f32[32,8] -> f32[33,8], labels: shape i32[32] -> i32[33] and 1 more",
        ),
        (TREE + STATIC.format("[0][1]", 0.2, 0.1), "static argument 2: 0.1 -> 0.2"),
        (TREE + STATIC.format("[0][1]", LONG.format(1.5), LONG.format(1)), "argument 2: 1 -> 1.5"),
        (IN_EQUINOX, "a Python value among its arguments: 1.0 -> 1.5"),
        (
            TREE + STATIC.format("[1]['learning_rate']", 0.2, 0.1),
            "static argument learning_rate: 0.1 -> 0.2",
        ),
        (
            TREE + STATIC.format("[1]['cfg']", "(1, 3)", "(1, 2)"),
            "static argument cfg: (1, 2) -> (1, 3)",
        ),
        (
            TREE
            + STATIC.format(
                "[0][0]", "<train.Model object at 0x7f1>", "<train.Model object at 0x7f2>"
            ),
            "static argument 1 is a new object each time: <train.Model object>",
        ),
        (
            f"{TREE}at input path [0], now tuple of length 3 and before tuple of length 2, so the "
            "lengths do not match",
            "its arguments change their structure at [0]: tuple of length 2 -> tuple of length 3",
        ),
        (
            f"{TREE}at input path [1], now <class 'dict'> with 2 children and before <class "
            "'dict'> with 1 child, so the numbers of children do not match, with the symmetric "
            "difference of key sets: {'mask'}",
            "its arguments change their structure at [1]: 'mask' is not always there",
        ),
        (
            f"{HEAD}Tracing context doesn't match, e.g. due to config or context manager.\n  * "
            "jax_default_matmul_precision differs: now highest and before None",
            "the setting jax_default_matmul_precision changes: None -> highest",
        ),
        (
            "never seen function:\n    <lambda> id=1 defined at /home/me/train.py:33\n  but seen "
            "another function defined on the same line; maybe the function is\n  being re-defined "
            "repeatedly, preventing caching?",
            "each time it is a new function object, defined at me/train.py:33",
        ),
        ("never seen function:\n    step id=1 defined at /a/b.py:3", "jax does not say why"),
        ("told in some way to come", "jax does not say why"),
        (None, "jax does not say why"),
    ],
)
def test_says_which_argument_changed_and_how(reason: str | None, words: str) -> None:
    """The texts are those of jax 0.10.2, one for each cause."""
    assert words in again(reason).summary


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (SHAPE, "jnp.pad"),
        (f"{TYPES}at x, now f16[8] and before f32[8]", "jnp.asarray"),
        (TREE + STATIC.format("[0][1]", 0.2, 0.1), "jnp.float32(value)"),
        ("never seen …\n defined at a/b.py:3\n but … on the same line", "jax.jit(step)"),
    ],
)
def test_the_advice_fits_the_cause(reason: str, advice: str) -> None:
    assert advice in again(reason).fixes[0].how


def test_a_first_evaluation_in_the_window_is_no_recompilation() -> None:
    seen = seen_with(*compiled(5), *compiled(11, function="evaluate"))
    assert recompilation.check(seen).kind == "ok"


def test_a_smaller_last_batch_is_no_recompilation() -> None:
    assert recompilation.check(seen_with(*compiled(5, 6, 11))).kind == "ok"


def test_a_burst_of_helpers_in_the_window_is_no_recompilation() -> None:
    """As an evaluation causes it, that makes arrays of new shapes."""
    helpers = compiled(1, 2, 3, 4, 11.0, 11.1, 11.2, function="broadcast_in_dim", reason=None)
    assert recompilation.check(seen_with(*compiled(5), *helpers)).kind == "ok"


def test_helpers_compiled_before_the_window_are_no_recompilation() -> None:
    helpers = compiled(*(n / 10 for n in range(50)), function="_uniform", reason=None)
    seen = seen_with(*helpers, *compiled(6))
    assert recompilation.check(seen).kind == "ok"
    assert recompilation.check(replace(seen, steps=None)).kind == "not-measured"


def test_a_helper_that_keeps_coming_is_found() -> None:
    """As with a list of losses that is stacked in each step."""
    growing = compiled(4, 10.5, 11.5, 12.5, function="concatenate", reason=None)
    seen = seen_with(*compiled(5), *growing)
    outcome = recompilation.check(seen)
    assert outcome.kind == "issue" and outcome.summary.startswith("concatenate")
    assert_sound(outcome, seen)


def test_one_slow_repeat_of_the_step_in_the_window_is_enough() -> None:
    """Where a compilation takes longer than the window, no more of them can end in it."""
    assert recompilation.check(seen_with(*compiled(2, 5, 8, 11))).kind == "issue"


def test_without_a_reason_or_a_dominating_function_nothing_is_said_without_steps() -> None:
    few = replace(seen_with(*compiled(1, 2, 3)), steps=None)
    assert recompilation.check(few).kind == "not-measured"
    none = replace(seen_with(), steps=None)
    assert recompilation.check(none).kind == "not-measured"


def ended_early(*compiles: Compile, compiling_ms: float) -> Observation:
    """A run that ended before a window, with steps of a second each that its calls told."""
    seen = seen_with(*compiles)
    assert seen.steps is not None
    steps = replace(seen.steps, is_traced=False, began_s=0.0, window_s=0.0)
    calls = StepCalls(calls=(), time_ms=1000.0, steps=5, compiling_ms=compiling_ms)
    return replace(seen, steps=steps, calls=calls)


def test_of_a_run_that_ended_before_a_window_the_timed_steps_tell_what_is_lost() -> None:
    seen = ended_early(*compiled(1, 2, 3, 4, 5), compiling_ms=750.0)
    outcome = recompilation.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(1 + (4 - 1) / 2)  # shapes may come back
    assert outcome.summary.startswith("step was compiled 5 times in 4.0 s, 300 ms each")


@pytest.mark.parametrize(
    "seen",
    [
        ended_early(*compiled(1, 2, 3, 4, 5), compiling_ms=0.0),  # before any was timed
        ended_early(*compiled(1, 5), compiling_ms=300.0),  # an evaluation's
    ],
)
def test_what_is_compiled_at_the_start_of_a_short_run_is_no_recompilation(
    seen: Observation,
) -> None:
    assert recompilation.check(seen).kind == "ok"


def missed_by_the_window(*at_s: float, reason: str = VALUE) -> Observation:
    """A traced run whose timed steps, before the window, took three quarters for compiling."""
    seen = seen_with(*compiled(*at_s, reason=reason))
    return replace(seen, calls=StepCalls(calls=(), time_ms=80.0, steps=20, compiling_ms=60.0))


@pytest.mark.parametrize("at_s", [(0, 3.2, 6.4, 9.8), (0, 3, 6, 9, 13.5)])
def test_what_is_due_only_after_a_short_window_is_told_by_the_timed_steps(
    at_s: tuple[float, ...],
) -> None:
    seen = missed_by_the_window(*at_s)
    outcome = recompilation.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(4)


@pytest.mark.parametrize(
    "seen",
    [
        missed_by_the_window(1, 2, 4, 7),  # it came to rest
        missed_by_the_window(3, 6, 9.8),  # too few to be a habit
        missed_by_the_window(1, 3, 5, reason=RATE),
        missed_by_the_window(0, 3.2, 6.4, 9.8, reason=SHAPE),  # some lengths are rare
    ],
)
def test_what_is_over_before_the_window_is_no_recompilation(seen: Observation) -> None:
    assert recompilation.check(seen).kind == "ok"


@pytest.mark.parametrize(
    "words",
    [
        ("<Model rate=0.1 at 0x7f1>", "<Model rate=0.1 at 0x7f2>"),  # a new object each time
        ("None", "0.5"),
        ("True", "False"),
        ("16", "32"),
    ],
)
def test_what_is_no_value_of_a_schedule_needs_all_of_them(words: tuple[str, str]) -> None:
    seen = missed_by_the_window(3, 6, 9.8, reason=TREE + STATIC.format("[0][1]", *words[::-1]))
    assert recompilation.check(seen).kind == "ok"


SMALL = TREE + STATIC.format("[0][1]", "2e-05", "1e-05")


@pytest.mark.parametrize("reason", [RATE, SMALL, IN_EQUINOX])
def test_values_of_a_schedule_need_one_repeat_less(reason: str) -> None:
    slow = missed_by_the_window(3, 6, 9.8, reason=reason)
    assert recompilation.check(slow).kind == "issue"
    never_steady = replace(slow, steps=None)
    assert_sound(recompilation.check(never_steady), never_steady)
    assert recompilation.check(never_steady).kind == "issue"
    once = missed_by_the_window(6, 9.8, reason=reason)
    assert recompilation.check(once).kind == "ok"


def test_functions_that_are_all_compiled_again_count_together_without_steps() -> None:
    functions = ("encode", "similarity", "hardest", "step")
    each = [compiled(1, 3, 5, 7, 9, 11, function=name) for name in functions]
    seen = replace(seen_with(*(one for many in each for one in many)), steps=None)
    outcome = recompilation.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert "compiled 6 times" in outcome.summary
    assert ", and 3 other functions too" in outcome.summary


@given(
    at_s=st.lists(st.floats(0, 20), max_size=12),
    seconds=st.floats(0, 100),
    window_s=st.floats(0, 10),
    steps=st.booleans(),
)
def test_estimates_are_in_order_whatever_was_compiled(
    at_s: list[float], seconds: float, window_s: float, steps: bool
) -> None:
    """Made up, degenerate ones among them: an empty window, compilations longer than it."""
    seen = seen_with(*(replace(each, seconds=seconds) for each in compiled(*at_s)))
    assert seen.steps is not None
    window = replace(seen.steps, window_s=window_s)
    seen = replace(seen, steps=window if steps else None)
    outcome = recompilation.check(seen)
    if outcome.kind == "issue":
        assert_sound(outcome, seen)


def test_control_flow_outside_of_a_function_is_a_matter_of_missing_jit() -> None:
    at_s = [BEGAN_S + n / 10 for n in range(20)]
    again = compiled(*at_s, function="scan", reason=None)
    assert recompilation.check(seen_with(*again)).kind == "ok"
    assert recompilation.check(seen_with(*compiled(*at_s))).kind == "issue"
