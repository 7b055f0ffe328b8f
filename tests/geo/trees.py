"""Random trees for tests."""

import numpy as np
from hypothesis import strategies as st

from geo.tree import Tree


def regular(*fans):
    """Return a tree whose nodes of each level all have as many children."""
    parent, level = [-1], [0]
    for fan in fans:
        below = []
        for node in level:
            for _ in range(fan):
                below.append(len(parent))
                parent.append(node)
        level = below
    return Tree(np.array(parent))


def with_elsewhere(*fans):
    """Return a regular tree with one more leaf under the root."""
    parent = regular(*fans).parent
    last = 1 + fans[0]
    # The new leaf is the last child of the root: it comes after the others of its level, and moves the numbers after it.
    moved = np.where(parent[1:] >= last, parent[1:] + 1, parent[1:])
    return Tree(np.concatenate([[-1], moved[: fans[0]], [0], moved[fans[0] :]]))


@st.composite
def trees(draw, max_nodes=40):
    """Any shape: chains, single children, leaves at every level."""
    size = draw(st.integers(1, max_nodes))
    parent = [-1]
    for node in range(1, size):
        parent.append(draw(st.integers(max(parent[-1], 0), node - 1)))
    return Tree(np.array(parent))
