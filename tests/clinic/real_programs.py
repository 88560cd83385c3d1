"""Programs that nobody here wrote: the training examples that flax and haiku publish.

python -m tests.clinic.real_programs [--alone] [PROGRAM | PROGRAM/VARIANT …]

Each example runs unchanged: it is unpacked from the source distribution of the installed version
(`pip download`) into a temporary folder, and nothing of it is kept. What it would download, and
packages that only feed or draw, are stood in for by tests/clinic/stand_ins. `perfdoctor check`
examines it as it is, where it may have real faults, and with a fault that is planted from outside:
a variable of its environment, an argument of its own, or data that is slow to decode.

Prints what was found beside what had to be found. `--alone` runs the programs for a while without
perfdoctor: a test that they run at all. tests/clinic/requirements.txt has what they need.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.clinic.stand_ins.tensorflow_datasets.made_up import sentences, vocabulary
from tests.saved import save

STAND_INS = Path(__file__).parent / "stand_ins"
RESULTS = Path(__file__).parent / "results" / "real_programs.json"
BUDGET_S, LIMIT_S, ALONE_S = 180, 600.0, 45.0
AS_IT_IS = "as-it-is"
AROUND = {"competing-processes", "throttling"}
"""What the machine may add to any report."""
TENSORFLOW = ("tensorflow", "tensorflow_datasets", "tensorboard")
CONFIG = ("--config=configs/default.py",)
MANY_EPOCHS = ("--config.num_epochs=1000",)
HEADING = (
    f"{'program':<16} {'version':<8} {'variant':<13} {'exit':<5} {'step':<11} "
    f"{'found, by rank':<40} {'expected (?: possibly)':<31}"
)


@dataclass(frozen=True)
class Fault:
    """A cause that is at work in a program as it was published."""

    check: str
    why: str
    certain: bool = True
    """If not, it depends on the machine whether it costs enough to be an issue."""


@dataclass(frozen=True)
class Variant:
    """What is planted."""

    name: str
    check: str | None = None
    """What has to be found; None: nothing beyond the program's own faults."""
    first: bool = False
    """It has to be rank 1."""
    may_be_hint: bool = False
    """Costing less than an issue is right as well."""
    env: dict[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Of perfdoctor."""


@dataclass(frozen=True)
class Program:
    """An example, and how to start it."""

    name: str
    package: str
    """Whose source distribution has it."""
    folder: str
    """Where it is started, in the distribution."""
    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    """`{work}` stands for a folder of its own."""
    stand_ins: tuple[str, ...] = ()
    prepare: Callable[[Path], None] | None = None
    """Lays out data in that folder."""
    faults: tuple[Fault, ...] = ()
    planted: tuple[Variant, ...] = ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """As it is first."""
        return (Variant(AS_IT_IS), *self.planted)


def nan_checks() -> Variant:
    """NaN checks left on: an issue if they cost."""
    env = {"JAX_DEBUG_NANS": "1"}
    return Variant("nan-checks", "debug-flags", may_be_hint=True, env=env, options=("--try-fixes",))


def doubles(computes: bool) -> Variant:
    """64 bits allowed: a fault only in programs that leave a type to jax's default, if it costs."""
    check = "dtype" if computes else None
    return Variant("64-bits", check, may_be_hint=True, env={"JAX_ENABLE_X64": "1"})


def slow_loader(decode_ms: int) -> Variant:
    """Batches that take longer to decode than to train on."""
    env = {"STAND_IN_DECODE_MS": str(decode_ms)}
    return Variant("slow-loader", "etl", first=True, env=env)


def tiny_batch(*args: str, may_be_hint: bool = False) -> Variant:
    """By the program's own argument."""
    return Variant("tiny-batch", "batch-size", args=args, may_be_hint=may_be_hint)


def write_text(work: Path) -> None:
    """A text of made-up words."""
    (work / "text.txt").write_bytes(b"\n".join(sentences(8_000)))


def write_vocabulary(work: Path) -> None:
    """The model of a tokenizer, where the program keeps the one that it trains."""
    (work / "sentencepiece_model").write_text("\n".join(vocabulary()))


def write_tagged(work: Path) -> None:
    """Sentences with a tag for each word, in the columns of CoNLL; a word's tag is its length."""
    for name, count in (("train", 1500), ("dev", 100)):
        lines = []
        for sentence in sentences(count):
            for position, word in enumerate(sentence.decode().split(), 1):
                tag = f"T{len(word)}"
                lines.append(f"{position}\t{word}\t{word}\t{tag}\t{tag}\t_\t0\troot")
            lines.append("")
        (work / f"{name}.conll").write_text("\n".join(lines))


NO_DONATION = Fault("workspaces", "its step does not donate the state", certain=False)
MANY_DEVICES = Fault("idle-devices", "it makes 8 devices of one CPU by itself", certain=False)
PROGRAMS = [
    Program(
        name="mnist",
        package="flax",
        folder="examples/mnist",
        command=("main.py",),
        args=(*CONFIG, *MANY_EPOCHS, "--workdir={work}"),
        stand_ins=TENSORFLOW,
        faults=(NO_DONATION,),
        planted=(
            doubles(computes=False),
            nan_checks(),
            slow_loader(200),
            tiny_batch("--config.batch_size=2"),
        ),
    ),
    Program(
        name="vae",
        package="flax",
        folder="examples/vae",
        command=("main.py",),
        args=(*CONFIG, *MANY_EPOCHS, "--workdir={work}"),
        stand_ins=TENSORFLOW,
        faults=(Fault("missing-jit", "train_step() in train.py is called without jax.jit"),),
        planted=(slow_loader(300),),
    ),
    Program(
        name="seq2seq",
        package="flax",
        folder="examples/seq2seq",
        command=("main.py",),
        args=(*CONFIG, "--config.workdir={work}"),
        stand_ins=TENSORFLOW,
        faults=(
            Fault("etl", "each batch is made in Python, in the main thread", certain=False),
            NO_DONATION,
        ),
        planted=(nan_checks(), tiny_batch("--config.batch_size=2")),
    ),
    Program(
        name="lm1b",
        package="flax",
        folder="examples/lm1b",
        command=("main.py",),
        args=(
            *CONFIG,
            "--workdir={work}",
            "--config.emb_dim=64",
            "--config.qkv_dim=64",
            "--config.mlp_dim=256",
            "--config.num_layers=2",
            "--config.num_eval_steps=2",
            "--config.max_eval_target_length=128",
            "--config.save_checkpoints=False",
        ),
        stand_ins=(*TENSORFLOW, "tensorflow_text", "sentencepiece"),
        prepare=write_vocabulary,
        faults=(Fault("etl", "examples are packed one by one, here in Python", certain=False),),
        planted=(
            slow_loader(3000),
            # two texts of 128 tokens take 12 ms each, of the 32 of the usual batch 13 ms
            tiny_batch("--config.per_device_batch_size=2", may_be_hint=True),
        ),
    ),
    Program(
        name="sst2",
        package="flax",
        folder="examples/sst2",
        command=("main.py",),
        args=(*CONFIG, *MANY_EPOCHS, "--workdir={work}"),
        stand_ins=(*TENSORFLOW, "tensorflow_text"),
        faults=(
            Fault("recompilation", "each of the 8 lengths of its batches is new", certain=False),
            NO_DONATION,
        ),
        planted=(nan_checks(), tiny_batch("--config.batch_size=2")),
    ),
    Program(
        name="nlp_seq",
        package="flax",
        folder="examples/nlp_seq",
        command=("train.py",),
        args=(
            "--train={work}/train.conll",
            "--dev={work}/dev.conll",
            "--model_dir={work}",
            "--batch_size=32",
            "--max_length=16",
        ),
        stand_ins=TENSORFLOW,
        prepare=write_tagged,
        planted=(slow_loader(5000),),
    ),
    Program(
        name="molecules",
        package="flax",
        folder="examples/ogbg_molpcba",
        command=("main.py",),
        args=(*CONFIG, "--workdir={work}", "--config.batch_size=64", "--config.latent_size=64"),
        stand_ins=TENSORFLOW,
        faults=(
            Fault("etl", "graphs are batched one by one, in the main thread", certain=False),
            NO_DONATION,
        ),
        planted=(slow_loader(10),),  # for each of the 64 graphs of a batch
    ),
    Program(
        name="ppo",
        package="flax",
        folder="examples/ppo",
        command=("ppo_main.py",),
        args=(
            *CONFIG,
            "--workdir={work}",
            "--config.num_agents=2",
            "--config.actor_steps=64",
            "--config.batch_size=64",
        ),
        stand_ins=(*TENSORFLOW, "gymnasium", "ale_py", "cv2"),
        faults=(
            Fault("batch-size", "the policy is asked for a few agents at a time", certain=False),
            Fault("etl", "the learner waits for the games", certain=False),
            Fault("host-sync", "each action is read before the next", certain=False),
            Fault("network", "a loop over minibatches is written out in its step", certain=False),
            NO_DONATION,
        ),
    ),
    Program(
        name="nnx_vae",
        package="flax",
        folder="examples/nnx_toy_examples",
        command=("05_vae.py",),
        stand_ins=("matplotlib", "datasets"),
        faults=(
            Fault("host-sync", "np.asarray(loss) in each step", certain=False),
            NO_DONATION,
        ),
        planted=(nan_checks(),),
    ),
    Program(
        name="nnx_transforms",
        package="flax",
        folder="examples/nnx_toy_examples",
        command=("02_lifted_transforms.py",),
        stand_ins=("matplotlib",),
        faults=(
            Fault("etl", "np.random.choice draws a batch, in half a step of 0.2 ms", certain=False),
            Fault("compile-cache", "it ends after seconds, half of them compiling", certain=False),
        ),
        planted=(doubles(computes=True),),
    ),
    Program(
        name="nnx_parallel",
        package="flax",
        folder="examples/nnx_toy_examples",
        command=("04_data_parallel_with_jit.py",),
        stand_ins=("matplotlib",),
        faults=(
            MANY_DEVICES,
            Fault("batch-size", "16 examples in a batch, shared by 8 devices", certain=False),
            Fault("compile-cache", "it ends after 4 s, one of them compiling", certain=False),
        ),
    ),
    Program(
        name="nnx_fsdp",
        package="flax",
        folder="examples/nnx_toy_examples",
        command=("10_fsdp_and_optimizer.py",),
        stand_ins=("matplotlib",),
        faults=(MANY_DEVICES, Fault("host-sync", "float(loss) in each step", certain=False)),
    ),
    Program(
        name="rnn",
        package="dm-haiku",
        folder=".",
        command=("-m", "examples.rnn.train"),
        args=("--eval_batch_size=64",),
        stand_ins=TENSORFLOW,
        faults=(NO_DONATION,),
        planted=(
            doubles(computes=True),
            slow_loader(2000),
            tiny_batch("--train_batch_size=2"),
        ),
    ),
    Program(
        name="transformer",
        package="dm-haiku",
        folder=".",
        command=("-m", "examples.transformer.train"),
        args=("--dataset_path={work}/text.txt",),
        prepare=write_text,
        faults=(
            Fault("batch-size", "BATCH_SIZE = 2 in train.py, of 64 tokens each", certain=False),
            NO_DONATION,
        ),
        planted=(nan_checks(),),
    ),
    Program(
        name="impala",
        package="dm-haiku",
        folder=".",
        command=("-m", "examples.impala.run_catch"),
        stand_ins=("bsuite",),
        faults=(
            Fault("batch-size", "BATCH_SIZE = 2 in run_catch.py", certain=False),
            Fault("shared-model", "each actor asks the policy for one action", certain=False),
            Fault("etl", "the learner waits for the actors", certain=False),
            Fault("host-sync", "parameters and losses are fetched each step", certain=False),
        ),
    ),
]


def unpacked(package: str, folder: Path) -> Path:
    """The source distribution of the installed version, unpacked once."""
    place = folder / package
    if not place.exists():
        wanted = f"{package}=={version(package)}"
        options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder / "sdists")]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, wanted], check=True)
        stem = package.replace("-", "_")
        (file,) = (folder / "sdists").glob(f"{stem}-*.tar.gz")
        with tarfile.open(file) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (folder / "unpacked" / file.name.removesuffix(".tar.gz")).rename(place)
    return place


@dataclass(frozen=True)
class Start:
    """A program that is ready to start."""

    cwd: Path
    env: dict[str, str]
    args: tuple[str, ...]
    work: Path


def ready(program: Program, variant: Variant, folder: Path) -> Start:
    """Program, stand-ins and data in their places; what an earlier run wrote is gone."""
    cwd = unpacked(program.package, folder) / program.folder
    place = folder / program.name
    shutil.rmtree(place, ignore_errors=True)
    work, stand_ins = place / "work", place / "stand_ins"
    work.mkdir(parents=True)
    stand_ins.mkdir()
    for name in program.stand_ins:
        shutil.copytree(
            STAND_INS / name, stand_ins / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    if program.prepare:
        program.prepare(work)
    paths = [str(stand_ins), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variant.env}
    args = tuple(each.format(work=work) for each in program.args)
    return Start(cwd, env, (*args, *variant.args), work)


def ended(command: list[str], start: Start, limit_s: float) -> tuple[int | None, str]:
    """Exit code, None if it ran to the limit, and the end of its output; no process stays."""
    log = start.work.parent / "output.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=start.cwd,
            env=start.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stop(process)
    return code, log.read_text()[-3000:]


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End its group: as Ctrl-C would, then for good."""
    for each, grace_s in ((signal.SIGINT, 5.0), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, each)
        except ProcessLookupError:
            return
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            continue


def alone(program: Program, variant: Variant, folder: Path) -> None:
    """Run it without perfdoctor for a while, and tell how that went."""
    start = ready(program, variant, folder)
    began = time.monotonic()
    code, output = ended([sys.executable, *program.command, *start.args], start, ALONE_S)
    how = "runs" if code is None else "ended well" if code == 0 else f"exit {code}"
    print(f"{program.name:<16} {variant.name:<13} {how}, {time.monotonic() - began:.0f} s")
    if code:
        print(output)


def examine(program: Program, variant: Variant, folder: Path) -> dict[str, Any]:
    """The report on a program, and whether it is right."""
    start = ready(program, variant, folder)
    report_file, printed = start.work.parent / "report.json", start.work.parent / "printed.txt"
    options = ["--budget", str(BUDGET_S), "--format", "json", *variant.options]
    files = ["--output", str(report_file), "--script-output", str(printed)]
    command = [*program.command, *options, *files, "--", *start.args]
    began = time.monotonic()
    code, output = ended([sys.executable, "-m", "perfdoctor", "check", *command], start, LIMIT_S)
    seen: dict[str, Any] = {
        "program": program.name,
        "version": f"{program.package} {version(program.package)}",
        "variant": variant.name,
        "exit": code,
        "seconds": round(time.monotonic() - began),
        "expected": expected(program, variant),
    }
    if code not in (0, 1):
        return {**seen, "right": False, "output": output, "found": [], "step_ms": None}
    report = json.loads(report_file.read_text())
    return {**seen, **summary(report), "right": right(program, variant, report)}


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """What matters of a report."""
    steps = report["steps"] or {}
    return {
        "step_ms": steps.get("time_ms"),
        "function": steps.get("function"),
        "found": [
            {key: finding[key] for key in ("rank", "check", "summary", "gain")}
            for finding in report["findings"]
        ],
        "hints": {c["id"]: c["summary"] for c in report["checks"] if c["outcome"] == "hint"},
        "not_measured": {
            c["id"]: c["summary"]
            for c in report["checks"]
            if c["outcome"] in ("not-measured", "crashed")
        },
    }


def expected(program: Program, variant: Variant) -> dict[str, str]:
    """Checks that have to report something, or may, and why."""
    wanted = {
        each.check: each.why if each.certain else f"possibly: {each.why}" for each in program.faults
    }
    if variant.check:
        wanted[variant.check] = f"planted{', rank 1' if variant.first else ''}"
    return wanted


def right(program: Program, variant: Variant, report: dict[str, Any]) -> bool:
    """Steps were measured, what had to be found is there, and nothing unexpected.

    A planted fault may hide a fault of the program itself.
    """
    found = [finding["check"] for finding in report["findings"]]
    outcomes = {each["id"]: each["outcome"] for each in report["checks"]}
    allowed = set(expected(program, variant)) | AROUND
    if report["steps"] is None or not set(found) <= allowed or "crashed" in outcomes.values():
        return False
    if variant.check is None:
        return {each.check for each in program.faults if each.certain} <= set(found)
    if variant.may_be_hint and outcomes[variant.check] == "hint":
        return True
    ranked = [each for each in found if each not in AROUND]
    return variant.check in (ranked[:1] if variant.first else found)


def row(seen: dict[str, Any]) -> str:
    """One line of the table."""
    gains = (
        f"{each['rank']} {each['check']}"
        + (f" {each['gain']['speedup']:.2f}× {each['gain']['basis']}" if each["gain"] else "")
        for each in seen["found"]
    )
    step = f"{seen['step_ms']:.1f} ms" if seen["step_ms"] else "-"
    wanted = ", ".join(
        f"{check}{'?' if why.startswith('possibly') else ''}"
        for check, why in seen["expected"].items()
    )
    return (
        f"{seen['program']:<16} {seen['version'].split()[1]:<8} {seen['variant']:<13} "
        f"{seen['exit']!s:<5} {step:<11} {', '.join(gains) or 'nothing':<40} "
        f"{wanted or 'nothing':<31} {'right' if seen['right'] else 'WRONG'}"
    )


def earlier() -> dict[str, Any]:
    """The results saved so far: what is not examined again stays."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def report_of(kept: dict[str, Any]) -> list[str]:
    """The table, in the order of the programs, and what explains it."""
    order = [f"{p.name}/{v.name}" for p in PROGRAMS for v in p.variants]
    seen = [kept[name] for name in order if name in kept]
    good = sum(each["right"] for each in seen)
    whys = [
        f"{p.name}: {fault.check}{'' if fault.certain else '?'}: {fault.why}"
        for p in PROGRAMS
        for fault in p.faults
    ]
    return [
        HEADING,
        *map(row, seen),
        "",
        f"right: {good} of {len(seen)}",
        "",
        "Faults of the programs themselves (?: if it costs enough on this machine):",
        *whys,
    ]


def main() -> None:
    """All of them, or those that are named."""
    names = {each for each in sys.argv[1:] if each != "--alone"}
    chosen = [
        (program, variant)
        for program in PROGRAMS
        for variant in program.variants
        if not names or {program.name, f"{program.name}/{variant.name}"} & names
    ]
    kept = earlier()
    with tempfile.TemporaryDirectory() as folder:
        for program, variant in chosen:
            if "--alone" in sys.argv:
                alone(program, variant, Path(folder))
                continue
            kept[f"{program.name}/{variant.name}"] = examine(program, variant, Path(folder))
            save("real_programs", report_of(kept), kept)


if __name__ == "__main__":
    main()
