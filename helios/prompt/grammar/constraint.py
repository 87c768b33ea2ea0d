"""One request's way through its grammar: which tokens may come next, and what came.

It knows token ids and the library's matcher, no text and no scheduler; it is a `TokenConstraint` of helios/scheduler/request.py. A
mask never allows a token that `advance` would refuse, and the ends of generation are in it exactly where the answer may end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class GrammarConstraint:
    """Lives on one thread. Raises ConstraintError once the grammar cannot go on; that ends this request alone."""

    def mask(self) -> NDArray[np.uint32]:
        """uint32 [ceil(vocabulary / 32)], bit set: allowed. The same row every time, valid until `advance`."""
        raise NotImplementedError

    def advance(self, token_id: int) -> None:
        """Take in a token that was sampled under the mask; an end of generation is not fed."""
        raise NotImplementedError
