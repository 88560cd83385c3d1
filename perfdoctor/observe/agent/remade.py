"""State that a program makes anew between its calls: fetched, changed by NumPy, and put back.

No array is known again then. But a state is a tree, and a step returns it in the order in which it
takes it: a run of arguments that is like a run of results, array by array, where nothing takes
these results, is the same state.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from perfdoctor.observe.agent.calls import Probed, Prober
from perfdoctor.schema.calls import Call, Leaf

FEWEST = 2
"""Arrays in a run: a single one that is like a result may be the labels beside the predictions."""


def with_remade(calls: list[Call], probed: Sequence[Probed], prober: Prober) -> list[Call]:
    """The calls of a step, with what is remade told as state; `probed`: one step of them."""
    taken = {token.number for each in prober.calls for token in each.inputs}
    ours = {each.function.number for each in probed}
    reused = {  # of each function, the places of the results that some call takes
        (each.function.number, index)
        for each in prober.calls
        if each.function.number in ours
        for index, token in enumerate(each.outputs)
        if token.number in taken
    }
    found = list(calls)
    for maker, each in enumerate(probed):
        number = each.function.number
        looks = prober.results.get(number, ())
        free = [(number, index) not in reused for index in range(len(looks))]
        for place, call in enumerate(found):
            found[place] = matched(call, maker, looks, free)
    return found


def matched(call: Call, maker: int, looks: Sequence[object], free: Sequence[bool]) -> Call:
    """A call, with those of its arguments told as state that are like free results of `maker`."""
    leaves = list(call.leaves)
    for begin, index, length in runs(leaves, maker, looks, free):
        for n in range(length):
            leaf = leaves[begin + n]
            if leaf.role == "new":
                source = maker, index + n
                leaves[begin + n] = replace(leaf, role="state", source=source, remade=True)
    return replace(call, leaves=tuple(leaves))


def runs(
    leaves: Sequence[Leaf], maker: int, looks: Sequence[object], free: Sequence[bool]
) -> Iterator[tuple[int, int, int]]:
    """Where arguments begin that are like results in their order, where those begin, and how many
    there are: each run as long as it gets, and none that looks like a batch.
    """
    begin = 0
    while begin < len(leaves):
        lengths = {
            index: length_of(leaves[begin:], maker, looks, free, index)
            for index in range(len(looks))
        }
        index = max(lengths, key=lambda each: lengths[each], default=0)
        length = lengths.get(index, 0)
        run = leaves[begin : begin + length]
        if length >= FEWEST and not is_batch(run):
            yield begin, index, length
        begin += max(1, length)


def length_of(
    leaves: Sequence[Leaf],
    maker: int,
    looks: Sequence[object],
    free: Sequence[bool],
    index: int,
) -> int:
    """How many arguments are like the results from the index-th on."""
    count = 0
    for leaf, look, is_free in zip(leaves, looks[index:], free[index:], strict=False):
        is_known = leaf.role == "state" and leaf.source == (maker, index + count)
        is_anew = leaf.role == "new" and leaf.kind == "device" and is_free
        if not is_known and not (is_anew and (leaf.shape, leaf.dtype) == look):
            break
        count += 1
    return count


def is_batch(run: Sequence[Leaf]) -> bool:
    """Whether all have the same length along their first axis."""
    return len({leaf.shape[:1] for leaf in run}) == 1
