"""The step of callbacks_trainer."""

import jax

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does, without callbacks; the smoothing is the first one."""
    train = style("callbacks_trainer")
    optax = train.optax
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 200, 100_000)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    params = train.init_params(jax.random.key(0), [54, 384, 384, 7])
    trainer = train.Trainer(params, optimizer, [])
    batch = next(train.Table(38_400, 54, 7, 0).batches(128))
    return fed_back(
        trainer.train_step, (trainer.params, trainer.opt_state), batch, trainer.smoothing
    )
