"""What device and host memory truly contain while the books are kept: the other half of the bargain, played in plain Python.

A page's contents are the key and all tokens up to its last written position, because keys and values depend on everything before
them. Every read says what it expects to find, so a wrong page, a stale row or an early publication fails at the first read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.cache.books import CacheBooks, CacheShape, prefix_key
from helios.cache.holding import Holding, Match
from helios.cache.journal import Journal
from helios.cache.transfer import Store, Transfer

Contents = tuple[bytes, tuple[int, ...]]
GARBAGE: Contents = (b"garbage", ())


@dataclass(eq=False)
class Sequence:
    """A sequence with its whole future: `tokens` are the prompt and what will be generated."""

    key: bytes
    tokens: tuple[int, ...]
    holding: Holding
    is_private: bool
    is_started: bool = False
    n_computed: int = 0
    table: dict[int, int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)  # row -> endpoint


class Memory:
    """Executes what the books say. Sequences run one step at a time; transfers take as long as the test likes."""

    def __init__(self, shape: CacheShape) -> None:
        self.shape = shape
        self.books = CacheBooks(shape, Journal(prefix_key(b"model", "", "", [])))
        self.sequences: list[Sequence] = []
        self.in_flight: list[tuple[Transfer, Contents]] = []
        self._contents = {
            (Store.PAGE, False): [GARBAGE] * shape.n_pages,
            (Store.PAGE, True): [GARBAGE] * shape.n_host_pages,
            (Store.ROW, False): [GARBAGE] * shape.n_rows,
            (Store.ROW, True): [GARBAGE] * shape.n_host_rows,
        }

    # -- a sequence's life

    def open(
        self, key: bytes, tokens: tuple[int, ...], n_prompt: int, *, is_private: bool = False, uses_host: bool = True
    ) -> Sequence:
        match: Match | None = None
        if not is_private:
            match = self.books.lookup(key, tokens[:n_prompt], n_prompt - 1, uses_host=uses_host)
            assert match.n_tokens <= n_prompt - 1
            assert uses_host or not (match.n_host_pages or match.n_host_rows)
            assert match.n_promised >= match.n_tokens
        holding = self.books.open(key, tokens[:n_prompt], match, is_private=is_private)
        sequence = Sequence(key, tokens, holding, is_private, n_computed=holding.n_reused)
        self.sequences.append(sequence)
        return sequence

    def start(self, sequence: Sequence) -> bool:
        """Reload what is to reload; once that is there, attach and restore. False: not yet."""
        holding = sequence.holding
        transfers = self.books.reload(holding)
        if transfers is None:
            return False
        self.begin(transfers)
        if not holding.is_ready or not self.extend(sequence, holding.n_reused + 1):
            return False
        for page_index, page_id in self.books.attach(holding):
            assert page_index not in sequence.table
            sequence.table[page_index] = page_id
        restored = self.books.restore(holding)
        if restored is not None:
            self._restore(sequence, *restored)
        assert len(sequence.table) == holding.n_pages
        sequence.is_started = True
        self.read_all(sequence)
        return True

    def extend(self, sequence: Sequence, n_positions: int) -> bool:
        entries = self.books.extend(sequence.holding, n_positions)
        if entries is None:
            return False
        for page_index, page_id in entries:
            assert page_index not in sequence.table
            assert all(page_id not in other.table.values() for other in self.sequences), "a page in two hands"
            sequence.table[page_index] = page_id
            self._contents[Store.PAGE, False][page_id] = GARBAGE
        return True

    def compute(self, sequence: Sequence, n_tokens: int) -> int:
        """Write up to `n_tokens` more positions: how many there was room for."""
        n_tokens = min(n_tokens, len(sequence.tokens) - sequence.n_computed)
        if n_tokens <= 0 or not self.extend(sequence, sequence.n_computed + n_tokens):
            return 0
        for _ in range(n_tokens):
            self._write_position(sequence)
        self.read_all(sequence)
        return n_tokens

    def publish(self, sequence: Sequence) -> None:
        self.books.publish(sequence.holding, sequence.tokens[: sequence.n_computed], sequence.n_computed)

    def save_row(self, sequence: Sequence) -> None:
        """The round also writes a snapshot of where the sequence is now."""
        row = self.books.reserve_row(sequence.holding)
        if row is not None:
            assert all(row not in other.rows for other in self.sequences), "a row in two hands"
            sequence.rows[row] = sequence.n_computed
            self._contents[Store.ROW, False][row] = self._true(sequence, sequence.n_computed)

    def settle_row(self, sequence: Sequence, *, is_published: bool) -> None:
        """The round that wrote the snapshot is complete. Further on than the snapshot's page, it is dropped."""
        row, endpoint = sequence.rows.popitem()
        if is_published and len(sequence.holding.nodes) <= endpoint // self.shape.page_tokens:
            self.books.publish_snapshot(sequence.holding, sequence.tokens[:endpoint], endpoint, row)
        else:
            self.books.drop_row(sequence.holding, row)

    def release(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)
        self.books.release(sequence.holding)

    def run_whole(self, key: bytes, prompt: tuple[int, ...], tokens: tuple[int, ...], *, is_released: bool) -> None:
        """A sequence without trouble, as far as there is room: snapshots at the end of the prompt and at the end."""
        sequence = self.open(key, tokens, len(prompt))
        if not self.start(sequence):
            return
        for end in (len(prompt), len(tokens)):
            if self.compute(sequence, end - sequence.n_computed):
                self.publish(sequence)
                self.save_row(sequence)
                if sequence.rows:
                    self.settle_row(sequence, is_published=True)
        if is_released:
            self.release(sequence)

    # -- the end

    def finish_all(self) -> None:
        while self.in_flight:
            self.finish(0)

    def check_one_alone_can_have_every_page(self) -> None:
        """No state makes a sequence wait for itself: when all others have gone, everything is the last one's."""
        if not self.sequences:
            return
        survivor = self.sequences[0]
        for other in self.sequences[1:]:
            self.release(other)
        self.finish_all()
        if not survivor.is_started and not self.start(survivor):
            assert self.in_flight
            self.finish_all()
            assert self.start(survivor)
        assert self.extend(survivor, self.shape.n_pages * self.shape.page_tokens)
        self.books.check()

    def close(self) -> None:
        """Everything is let go, and nothing is missing."""
        for sequence in list(self.sequences):
            self.release(sequence)
        self.finish_all()
        self.books.check()
        assert self.books.n_free_pages + self.books.n_evictable_pages == self.shape.n_pages

    # -- transfers

    def begin(self, transfers: list[Transfer]) -> None:
        """A destination is garbage until the transfer is finished."""
        for transfer in transfers:
            source, destination = self._ends(transfer)
            assert all(transfer != other for other, _ in self.in_flight)
            self.in_flight.append((transfer, self._at(source)))
            self._contents[destination[0]][destination[1]] = GARBAGE

    def finish(self, index: int) -> None:
        """The source has not changed meanwhile, and neither did anyone write to the destination."""
        transfer, contents = self.in_flight.pop(index)
        source, destination = self._ends(transfer)
        assert self._at(source) == contents != GARBAGE
        assert self._at(destination) == GARBAGE
        self._contents[destination[0]][destination[1]] = contents
        self.books.finish_transfer(transfer)

    # -- reads and writes

    def read_all(self, sequence: Sequence) -> None:
        """Attention reads the whole context through the table."""
        for start in range(0, sequence.n_computed, self.shape.page_tokens):
            end = min(start + self.shape.page_tokens, sequence.n_computed)
            page_id = sequence.table[start // self.shape.page_tokens]
            assert self._contents[Store.PAGE, False][page_id] == self._true(sequence, end)

    def _write_position(self, sequence: Sequence) -> None:
        page_index, offset = divmod(sequence.n_computed, self.shape.page_tokens)
        page_id = sequence.table[page_index]
        holders = [other for other in self.sequences if page_id in other.table.values()]
        assert holders == [sequence], "a shared page was written"
        if offset:
            assert self._contents[Store.PAGE, False][page_id] == self._true(sequence, sequence.n_computed)
        sequence.n_computed += 1
        self._contents[Store.PAGE, False][page_id] = self._true(sequence, sequence.n_computed)

    def _restore(self, sequence: Sequence, row: int, page_index: int, page_id: int) -> None:
        n_reused = sequence.holding.n_reused
        key, saved = self._contents[Store.ROW, False][row]
        assert (key, saved[:n_reused]) == self._true(sequence, n_reused)
        assert len(saved) // self.shape.page_tokens == n_reused // self.shape.page_tokens == page_index
        assert self.shape.is_truncatable or len(saved) == n_reused
        assert sequence.table[page_index] == page_id
        self._contents[Store.PAGE, False][page_id] = self._true(sequence, n_reused)

    def _true(self, sequence: Sequence, n_tokens: int) -> Contents:
        return sequence.key, sequence.tokens[:n_tokens]

    def _at(self, end: tuple[tuple[Store, bool], int]) -> Contents:
        return self._contents[end[0]][end[1]]

    def _ends(self, transfer: Transfer) -> tuple[tuple[tuple[Store, bool], int], tuple[tuple[Store, bool], int]]:
        on_device = (transfer.store, False), transfer.device_index
        on_host = (transfer.store, True), transfer.host_index
        return (on_device, on_host) if transfer.is_offload else (on_host, on_device)
