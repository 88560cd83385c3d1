"""The workload: every choice of the reference training loop, as read from a TOML file."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Switchable = Annotated[int, Meta(ge=0, le=1_000_000)]


class Model(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The network. What `width` and `depth` mean depends on the model's name:

    mlp: hidden units, hidden layers. cnn: channels of the first stage (doubled at each further
    one), stages. lstm: hidden units, layers. transformer: model dimension, blocks.
    """

    name: Literal["mlp", "cnn", "lstm", "transformer"] = "cnn"
    width: Annotated[int, Meta(ge=1, le=16_384)] = 32
    depth: Annotated[int, Meta(ge=1, le=256)] = 2
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    kernel: Annotated[int, Meta(ge=1, le=64)] = 3
    """Height and width of the convolutions of a cnn."""
    activation: Literal["relu", "gelu"] = "relu"
    """The activation of an mlp or a cnn; gelu is computed as it is defined, x Φ(x)."""
    scan: bool = True
    """Whether an lstm goes over time in one `lax.scan`, or in a Python loop."""


class Data(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The data set and how its batches are prepared."""

    source: Literal["images", "records", "memory"] = "records"
    folder: str | None = None
    """Where the data set is kept; none: the user's cache folder."""
    examples: Annotated[int, Meta(ge=10, le=100_000)] = 2_000
    image_size: Annotated[int, Meta(ge=8, le=512)] = 32
    """Height and width of the images, pixels."""
    sequence_length: Annotated[int, Meta(ge=2, le=8_192)] = 64
    """Tokens of one example of a sequence model."""
    augment: bool = True
    """Random flips and shifts of the images, anew in each epoch."""
    prefetch: Annotated[int, Meta(ge=0, le=1_024)] = 2
    """Batches prepared ahead of the step; 0: prepared in the main thread when asked for."""
    threads: Annotated[int, Meta(ge=1, le=256)] = 1
    """Threads that prepare batches, where `prefetch` is above 0."""
    workers: Annotated[int, Meta(ge=0, le=256)] = 0
    """Processes that prepare batches; 0: the threads of the training process."""


class Training(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The optimisation and how its step is run."""

    batch_size: Annotated[int, Meta(ge=1, le=65_536)] = 64
    dtype: Literal["float32", "bfloat16", "mixed", "float64"] = "float32"
    """Type of parameters and arithmetic; mixed: float32 parameters, bfloat16 arithmetic."""
    donate: bool = True
    """Whether the step may reuse the buffers of the state that it replaces."""
    jit: bool = True
    learning_rate: Annotated[float, Meta(gt=0, le=10)] = 1e-3
    steps: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100_000
    """The run ends after so many steps, if nobody stops it before."""
    log_every: Switchable = 50
    """The loss is read after so many steps; 0: never."""
    schedule: Literal["constant", "traced", "static"] = "constant"
    """How the learning rate reaches the step if it decays: as an array, or as a static argument."""
    schedule_every: Annotated[int, Meta(ge=1, le=1_000_000)] = 5
    """Steps after which it decays."""
    callback: Literal["none", "print", "metric"] = "none"
    """In each step `jax.debug.print` of the loss, or the accuracy by NumPy in a `pure_callback`."""
    state_on_host: bool = False
    """Whether the state is fetched to the host after each step and sent back with the next."""
    keep_every: Switchable = 0
    """A copy of the parameters is kept in memory after so many steps; 0: never."""
    devices: Annotated[int, Meta(ge=1, le=4_096)] = 1
    """Devices that share each batch."""
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class Process(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the training process."""

    env: dict[str, str] = {}
    """Environment variables set for the run."""
    gc_freeze: bool = False
    """`gc.freeze()` after set-up: what lives then is left out of later collections."""
    gc_collect_every: Switchable = 0
    """`gc.collect()` after so many steps; 0: never."""
    live_objects: Annotated[int, Meta(ge=0, le=50_000_000)] = 0
    """Python objects that the program holds beside the training."""


class Inference(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Serving the model instead of training it: each request is one example."""

    clients: Annotated[int, Meta(ge=0, le=256)] = 0
    """Threads that ask for predictions, each as soon as it has its last; 0: train."""
    batched: bool = False
    """Whether the requests of the clients are computed together, or each by its own call."""


class Workload(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One configuration of the reference training loop."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    training: Training = field(default_factory=Training)
    process: Process = field(default_factory=Process)
    inference: Inference = field(default_factory=Inference)
    expect: tuple[str, ...] = ()
    """Ids of the checks that the workload is made to set off."""
