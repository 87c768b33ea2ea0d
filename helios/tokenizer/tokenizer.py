"""Text to tokens and back: what a vocabulary says, on top of the `tokenizers` library.

It knows no model and no prompt format; the only input is the tokenizer asset of a core (a tokenizer.json). Nothing here changes
after construction, so one `Tokenizer` serves any number of threads, and text that was not allowed special tokens never yields
the id of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from typing import Any, Self

import numpy as np
import tokenizers

from helios.errors import ContextLengthError, CoreError, InvalidValueError
from helios.tokenizer.byte_table import ByteTable
from helios.tokenizer.least_tokens import LeastTokens

_MAX_VOCABULARY = 1 << 24
_GROUP = 2048  # ids
# Letters, marks, controls, every width of UTF-8: a vocabulary that lacks what its own settings name fails on one of them.
_PROBE = "a B\t1\n\0\x7f\xa0é中\u2581\ufffd😀\U0010ffff"
_MOST_UTF8_NBYTES = 4  # of a character; a token has one at least
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class Tokenizer:
    """The vocabulary of one model. Made by `from_bytes`. `added_tokens` are found in text as they are spelled, special or not;
    `special_tokens` are the ids of the special ones."""

    def __init__(self, library: tokenizers.Tokenizer, all_bytes: ByteTable) -> None:
        """`all_bytes` are the bytes of each token of `library`."""
        # The library decides by a property of the whole tokenizer whether special tokens are found in text, and setting it
        # for a call would race with other threads; so there are two, over one model.
        self._open = library
        self._plain = _over_same_model(library)
        self._plain.encode_special_tokens = True
        added = library.get_added_tokens_decoder()
        self.added_tokens = {token.content: token_id for token_id, token in added.items()}
        self.special_tokens = frozenset(token_id for token_id, token in added.items() if token.special)
        unknown = getattr(library.model, "unk_token", None)  # not every kind of model has the property
        self._forbidden = self.special_tokens - {None if unknown is None else self.token_id(unknown)}
        self._all_bytes = all_bytes
        self._visible_bytes = all_bytes.hiding(self.special_tokens)
        self.vocabulary_size = len(all_bytes)
        self.has_dummy_prefix = any(each["type"] == "Strip" and each.get("start") for each in _decoders(library))

    @classmethod
    def from_bytes(cls, asset: bytes) -> Self:
        """Read a tokenizer.json; CoreError when it is not one, or of a kind whose tokens have no bytes."""
        library = _load(asset)
        return cls(library, _byte_table(library))

    def encode(self, text: str, *, allow_special: bool) -> list[int]:
        """The ids of `text`. Special tokens spelled in it are found only when allowed; otherwise they are plain characters."""
        _require_unicode(text)
        if allow_special:
            return _encoding(self._open, text).ids
        encoding = _encoding(self._plain, text)
        ids = encoding.ids
        if self._forbidden.isdisjoint(ids):
            return ids
        return self._respell(text, encoding)

    def check_length(self, text: str, most_tokens: int) -> None:
        """Raise ContextLengthError where `text` surely has more tokens than that. It is not encoded for it, which takes 1.5 s for a
        mebibyte."""
        if len(text) * _MOST_UTF8_NBYTES <= most_tokens:
            return
        n_least = self._least_tokens.of(text)
        if n_least > most_tokens:
            raise ContextLengthError(n_least, most_tokens, is_least=True)

    @cached_property
    def _least_tokens(self) -> LeastTokens:
        return LeastTokens(self._open, self._all_bytes)

    def guarded(self, texts: Iterable[str]) -> Tokenizer:
        """This vocabulary with the tokens `texts` special as well: plain text yields them as little as any other special one."""
        guarded = set(texts)
        tokenizer = Tokenizer(_over_same_model(self._open, guarded), self._all_bytes)
        ids = [tokenizer.encode(text, allow_special=True) for text in guarded]
        tokenizer._forbidden |= {single[0] for single in ids if len(single) == 1}
        return tokenizer

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; those of its spelling for a special token. InvalidValueError for an unknown id."""
        if not 0 <= token_id < self.vocabulary_size:
            raise unknown_token(token_id, self.vocabulary_size)
        return self._all_bytes[token_id]

    def byte_table(self, *, skip_special: bool) -> ByteTable:
        """`token_bytes` of every id in order; with `skip_special`, special tokens stand for nothing."""
        return self._visible_bytes if skip_special else self._all_bytes

    def is_special(self, token_id: int) -> bool:
        if not 0 <= token_id < self.vocabulary_size:
            raise unknown_token(token_id, self.vocabulary_size)
        return token_id in self.special_tokens

    def token_id(self, text: str) -> int | None:
        """The id of the token that the vocabulary spells so (in its own alphabet), None when there is none."""
        found: int | None = self._open.token_to_id(text)
        return found

    def single_token(self, text: str) -> int | None:
        """The id of the one token that `text` becomes, None when it becomes several."""
        ids = self.encode(text, allow_special=True)
        return ids[0] if len(ids) == 1 and self._all_bytes[ids[0]] == text.encode("utf-8") else None

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of a sequence. Bytes that are not UTF-8 become U+FFFD; a leading space that encoding adds is dropped."""
        table = self.byte_table(skip_special=skip_special)
        pieces: list[bytes] = []
        for token_id in ids:
            if not 0 <= token_id < self.vocabulary_size:
                raise unknown_token(token_id, self.vocabulary_size)
            pieces.append(table[token_id])
        joined = b"".join(pieces)
        return (joined.removeprefix(b" ") if self.has_dummy_prefix else joined).decode("utf-8", errors="replace")

    def _respell(self, text: str, encoding: tokenizers.Encoding) -> list[int]:
        """Spell every special token character by character.

        Only a model that looks whole words up before it merges (`ignore_merges`), or whose merges build the spelling of a
        special token, comes here.
        """
        ids: list[int] = []
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id not in self._forbidden:
                ids.append(token_id)
                continue
            for character in text[start:end]:
                spelled = _encoding(self._plain, character).ids
                ids.extend(each for each in spelled if each not in self._forbidden)
        return ids


def unknown_token(token_id: int, vocabulary_size: int) -> InvalidValueError:
    return InvalidValueError(f"token id {token_id} is not in the vocabulary of {vocabulary_size:,} tokens")


def _require_unicode(text: str) -> None:
    """Refuse a lone surrogate, which JSON's escapes can smuggle into a str."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            f"text has the lone surrogate U+{ord(text[error.start]):04X} at character {error.start:,}, "
            "which is not valid Unicode"
        ) from None


def _load(asset: bytes) -> tokenizers.Tokenizer:
    with _library_errors("the tokenizer is not a tokenizer.json"):
        library = tokenizers.Tokenizer.from_buffer(asset)
    library.no_truncation()
    library.no_padding()
    _encoding(library, _PROBE)
    return library


def _encoding(library: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    with _library_errors("the tokenizer does not encode"):
        return library.encode(text, add_special_tokens=False)


@contextmanager
def _library_errors(what: str) -> Iterator[None]:
    """CoreError for whatever the library raises: nothing more precise than Exception, and panics, which are not even that."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise CoreError(f"{what}: {error}") from error
        raise


def _over_same_model(library: tokenizers.Tokenizer, also_special: Collection[str] = ()) -> tokenizers.Tokenizer:
    """A tokenizer of its own over the model of another, the tokens `also_special` special as well. Reading a second one would
    take a tenth of a second and 21 MiB for 50,000 tokens."""
    other = tokenizers.Tokenizer(library.model)
    other.normalizer = library.normalizer
    other.pre_tokenizer = library.pre_tokenizer
    other.decoder = library.decoder
    added = library.get_added_tokens_decoder()
    tokens = [added[token_id] for token_id in sorted(added)]
    for is_special, group in groupby(tokens, key=lambda token: token.special or token.content in also_special):
        (other.add_special_tokens if is_special else other.add_tokens)(list(group))
    if {id_: token.content for id_, token in other.get_added_tokens_decoder().items()} != {
        id_: token.content for id_, token in added.items()
    }:
        raise CoreError("the tokenizer's added tokens have ids that do not follow from their order")
    return other


def _decoders(library: tokenizers.Tokenizer) -> Sequence[dict[str, Any]]:
    if library.decoder is None:
        raise CoreError("the tokenizer names no decoder, so its tokens have no known bytes")
    decoder = json.loads(library.decoder.__getstate__())
    decoders: Sequence[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return decoders


def _byte_table(library: tokenizers.Tokenizer) -> ByteTable:
    """Bytes by id. An id that no token has stands for nothing."""
    kinds = {decoder["type"] for decoder in _decoders(library)}
    if "ByteLevel" in kinds:
        to_bytes = _from_byte_level
    elif "ByteFallback" in kinds:
        to_bytes = _from_sentencepiece
    else:
        raise CoreError(f"the tokenizer has the decoder {sorted(kinds)}, this build reads ByteLevel and ByteFallback")
    added = {token_id: token.content.encode("utf-8") for token_id, token in library.get_added_tokens_decoder().items()}
    _check_largest(max(added, default=library.get_vocab_size() - 1))
    return ByteTable(_pieces(library, to_bytes, added))


def _pieces(
    library: tokenizers.Tokenizer, to_bytes: Callable[[Sequence[str]], list[bytes]], added: Mapping[int, bytes]
) -> Iterator[list[bytes]]:
    """The bytes of each id in order, in groups."""
    end = 0
    for texts in _spellings(library):
        first, end = end, end + len(texts)
        added_here = [token_id for token_id in added if first <= token_id < end]
        for token_id in added_here:
            texts[token_id - first] = ""
        pieces = to_bytes(texts)
        for token_id in added_here:
            pieces[token_id - first] = added[token_id]
        yield pieces
    yield [added.get(token_id, b"") for token_id in range(end, max(added, default=-1) + 1)]


def _spellings(library: tokenizers.Tokenizer) -> Iterator[list[str]]:
    """How the model spells each id in order, "" for an id that it does not have, in groups: the objects of all at once would leave
    4 MB of holes in the heap. Usually it has all from 0 on; asking for each takes half the time of asking for the vocabulary."""
    id_to_token = library.model.id_to_token
    end = library.get_vocab_size(with_added_tokens=False)
    first, is_dense = 0, True
    while first < end:
        found = list(map(id_to_token, range(first, min(first + _GROUP, end))))
        first += len(found)
        if is_dense and None in found:
            end = max(library.get_vocab(with_added_tokens=False).values()) + 1
            _check_largest(end - 1)
            is_dense = False
        yield found if is_dense else ["" if text is None else text for text in found]


def _check_largest(token_id: int) -> None:
    if not 0 <= token_id < _MAX_VOCABULARY:
        raise CoreError(f"the tokenizer's largest token id is {token_id:,}, it must be 0 to {_MAX_VOCABULARY - 1:,}")


def _byte_alphabet() -> dict[int, int]:
    """Code point -> byte of the alphabet that GPT-2 chose: printable Latin-1 is itself, the other bytes follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + index: byte for index, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()
_NO_BYTE = 256
_BYTE_OF = np.full(max(_ALPHABET) + 2, _NO_BYTE, np.uint16)  # by code point, the last for all those behind the alphabet
_BYTE_OF[list(_ALPHABET)] = list(_ALPHABET.values())


def _from_byte_level(texts: Sequence[str]) -> list[bytes]:
    """All at once, a byte for each character; one by one if a token has characters outside the alphabet."""
    data = _bytes_of("".join(texts))
    if data is None:
        # Such a token is kept as text, as the library does.
        return [text.encode("utf-8") if (alone := _bytes_of(text)) is None else alone for text in texts]
    return [data[start:end] for start, end in pairwise(accumulate(map(len, texts), initial=0))]


def _bytes_of(text: str) -> bytes | None:
    """A byte for each character, None if one is outside the alphabet."""
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    found = _BYTE_OF[np.minimum(characters, len(_BYTE_OF) - 1)]
    return None if (found == _NO_BYTE).any() else found.astype(np.uint8).tobytes()


def _from_sentencepiece(texts: Sequence[str]) -> list[bytes]:
    return [
        bytes([int(byte[1], 16)])
        if (byte := _BYTE_TOKEN.fullmatch(text))
        else text.replace("\u2581", " ").encode("utf-8")
        for text in texts
    ]
