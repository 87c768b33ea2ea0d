"""One request's way through its grammar: which tokens may come next, and what came.

It knows token ids and the library's matcher, no text and no scheduler; it is a `TokenConstraint` of helios/scheduler/request.py. A
mask never allows a token that `advance` would refuse, and the ends of generation are in it exactly where the answer may end.
"""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from helios.errors import ConstraintError
from helios.prompt.grammar.lark import first_line


class GrammarConstraint:
    """Lives on one thread. Raises ConstraintError once the grammar cannot go on; that ends this request alone."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._row = np.zeros((vocabulary + 31) // 32, "<u4")
        self._address = self._row.__array_interface__["data"][0]
        self._is_filled = False

    def mask(self) -> NDArray[np.uint32]:
        """uint32 [ceil(vocabulary / 32)], bit set: allowed. The same row every time, valid until `advance`."""
        if not self._is_filled:
            self._matcher.unsafe_compute_mask_ptr(self._address, self._row.nbytes)
            self._check("has no token to go on with")
            self._is_filled = True
        return self._row

    def advance(self, token_id: int) -> None:
        """Take in a token that was sampled under the mask; an end of generation is not fed."""
        self._is_filled = False
        self._matcher.consume_token(token_id)
        self._check(f"does not allow the token {token_id}")

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        return bool(self._matcher.is_accepting())

    def _check(self, problem: str) -> None:
        """A matcher that failed offers the end of generation as if the answer were complete, so every step is looked at."""
        if self._matcher.is_error():
            raise ConstraintError(f"the grammar of the answer {problem}: {first_line(self._matcher.get_error())}")
