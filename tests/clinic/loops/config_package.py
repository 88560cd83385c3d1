"""The step of config_package."""

from functools import partial

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `train` does, with a file of one batch."""
    model, data = style("config_package", "trainer.model"), style("config_package", "trainer.data")
    config = model.Config(records=128)
    batch = next(iter(data.Records(config)))
    step = partial(model.train_step, config=config)
    return fed_back(step, [model.initial(config)], data.terrain(config), batch)
