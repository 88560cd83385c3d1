"""State that a program makes anew between its calls: fetched, changed by NumPy, and handed over.

No array is known again then. But a state is a tree, and a step returns it in the order in which it
takes it: a run of arguments that is like a run of results, array by array, where nothing takes
these results, is the same state.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from perfdoctor.observe.agent.arrays import Look
from perfdoctor.observe.agent.calls import Probed, Prober
from perfdoctor.schema.calls import Call, Leaf

ROOT = re.compile(r"\w+")
"""The parameter that an array is passed in: params of params['w']."""


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
            if any(free) and any(map(is_made_anew, call.leaves)):
                found[place] = matched(call, maker, looks, free)
    return found


def is_made_anew(leaf: Leaf) -> bool:
    """Whether it is an array that no call is known to have returned: new, or given away in each
    call, and there again in the next; a large one, of which little was changed, looks the same.
    """
    is_given_away = (
        leaf.role == "constant" and leaf.donated and (leaf.remade or leaf.kind == "host")
    )
    return (leaf.role == "new" or is_given_away) and leaf.kind in ("device", "host")


def matched(call: Call, maker: int, looks: Sequence[Look], free: Sequence[bool]) -> Call:
    """A call, with those of its arguments told as state that are like free results of `maker`."""
    leaves = list(call.leaves)
    for begin, index, length in runs(leaves, maker, looks, free):
        for n in remade_in(leaves[begin : begin + length]):
            source = maker, index + n
            leaves[begin + n] = replace(leaves[begin + n], role="state", source=source, remade=True)
    return replace(call, leaves=tuple(leaves))


def remade_in(run: Sequence[Leaf]) -> list[int]:
    """The places of those that are made anew: of a tree, for a single array may be the labels
    beside the predictions; and several that have one length in common are a batch.
    """
    roots = Counter(root_of(leaf) for leaf in run)
    found = [n for n, each in enumerate(run) if is_made_anew(each) and roots[root_of(each)] > 1]
    is_batch = len(found) > 1 and len({run[n].shape[:1] for n in found}) == 1
    return [] if is_batch else found


def root_of(leaf: Leaf) -> str:
    """The parameter that it is passed in."""
    found = ROOT.match(leaf.argument)
    return found[0] if found else leaf.argument


def runs(
    leaves: Sequence[Leaf], maker: int, looks: Sequence[Look], free: Sequence[bool]
) -> Iterator[tuple[int, int, int]]:
    """Where arguments begin that are like results in their order, where those begin, and how many
    there are: each run as long as it gets.
    """
    begin = 0
    while begin < len(leaves):
        lengths = {
            index: length_of(leaves[begin:], maker, looks, free, index)
            for index in range(len(looks))
        }
        index = max(lengths, key=lambda each: lengths[each], default=0)
        length = lengths.get(index, 0)
        yield begin, index, length
        begin += max(1, length)


def length_of(
    leaves: Sequence[Leaf],
    maker: int,
    looks: Sequence[Look],
    free: Sequence[bool],
    index: int,
) -> int:
    """How many arguments are like the results from the index-th on."""
    count = 0
    for leaf, look, is_free in zip(leaves, looks[index:], free[index:], strict=False):
        is_known = leaf.role == "state" and leaf.source == (maker, index + count)
        is_anew = is_made_anew(leaf) and is_free and (leaf.shape, leaf.dtype) == look
        if not is_known and not is_anew:
            break
        count += 1
    return count
