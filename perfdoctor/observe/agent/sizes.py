"""How large the batches of a program usually are."""

import sys
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

OFTEN, COMMON = 4, 0.125
"""How often a size of batches comes in the mean where these are a few; and the share of the steps
in which a common one does."""


def usual_size(sizes: Sequence[int]) -> range:
    """Of batches of a few sizes, as those of buckets, the common one that is nearest to the mean;
    of all that are alike but the last of an epoch, those. Of many sizes, one that most would fit
    in, as they may be padded to.
    """
    counts = Counter(sizes)
    if len(sizes) < OFTEN * len(counts):
        return range(sorted(sizes)[len(sizes) * 3 // 4], sys.maxsize)
    common = [size for size, count in counts.items() if count >= COMMON * len(sizes)]
    nearest = min(common or counts, key=lambda size: abs(size - fmean(sizes)))
    return range(nearest, nearest + 1)
