"""The size of a batch that stands for all."""

import pytest

from perfdoctor.observe.agent.sizes import usual_size


@pytest.mark.parametrize(
    ("sizes", "usual"),
    [
        ([64] * 20, 64),
        ([64] * 9 + [10], 64),  # the last one of an epoch
        ([8] * 10 + [16] * 10 + [32] * 10, 16),  # buckets
        ([8] * 20 + [16] + [32] * 10, 8),  # a bucket that hardly ever comes
        ([*range(16)] * 6, 7),
    ],
)
def test_a_batch_of_a_few_sizes_is_like_the_mean(sizes: list[int], usual: int) -> None:
    assert usual_size(sizes) == range(usual, usual + 1)


def test_a_batch_of_many_sizes_is_one_that_most_would_fit_in() -> None:
    assert usual_size(range(100)).start == 75
    assert 10**9 in usual_size(range(100))
