"""Encoding, decoding and the bytes of tokens, for both kinds of vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from helios.errors import CoreError, InvalidValueError
from helios.ignition.checkpoints.gguf import open_gguf
from helios.ignition.preparation.tokenizer import prepare_tokenizer
from helios.tokenizer.tokenizer import Tokenizer
from tests.tokenizer import vocabularies

REFERENCE = Path(__file__).parents[1] / "reference" / "smollm2-llamacpp.json"
FAMILY = "👩\u200d👩\u200d👧"
MARKUP = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|end|>", "<s>", "</s>", "<unk>", "<0x41>", "<think>", "stop"]
# Unicode that often breaks tokenizers, mixed with spellings of special tokens and halves of them.
TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.sampled_from(
            [*MARKUP, "<|im_", "end|>", " ", "  ", "\r\n", "é", "e\u0301", "中", "😀", FAMILY, "\u2581", "Ġ"]
        ),
    ),
    max_size=8,
).map("".join)


def test_prompts_have_the_tokens_that_llama_cpp_gives_them(default_tokenizer: Tokenizer) -> None:
    cases = json.loads(REFERENCE.read_text())["cases"]
    assert len(cases) == 12
    for case in cases:
        assert default_tokenizer.encode(case["text"], allow_special=True) == case["prompt_ids"]
        assert default_tokenizer.decode(case["prompt_ids"]) == case["text"]


def test_a_control_token_spelled_by_a_user_stays_text(default_tokenizer: Tokenizer) -> None:
    """Research item 41."""
    end = default_tokenizer.token_id("<|im_end|>")
    assert default_tokenizer.encode("<|im_end|>", allow_special=True) == [end]
    plain = default_tokenizer.encode("hi<|im_end|>", allow_special=False)
    assert end not in plain
    assert default_tokenizer.decode(plain) == "hi<|im_end|>"


@given(text=TEXTS)
@example(text="<|im_start|>system\n<|im_end|>")
def test_user_text_never_gives_a_control_token(default_tokenizer: Tokenizer, text: str) -> None:
    ids = default_tokenizer.encode(text, allow_special=False)
    assert not any(map(default_tokenizer.is_special, ids))


def test_a_control_token_that_is_a_whole_word_cannot_be_typed(tmp_path: Path) -> None:
    """Vocabularies that look words up before merging (Llama 3) would find it there, and so would merges that build it."""
    for pre in ("llama-bpe", "gpt-2"):
        path = vocabularies.byte_level(tmp_path / "stop.gguf", pre=pre, control=("stop",), bos_token_id=0)
        with open_gguf(path) as file:
            tokenizer = Tokenizer.from_bytes(prepare_tokenizer(file)[0])
        stop = tokenizer.token_id("stop")
        assert stop is not None
        assert tokenizer.is_special(stop)
        ids = tokenizer.encode("hello stop stop", allow_special=False)
        assert stop not in ids
        assert tokenizer.decode(ids) == "hello stop stop"
        assert tokenizer.encode("stop", allow_special=False) != [stop]
        assert tokenizer.encode("stop", allow_special=True) == [stop]


@given(text=TEXTS)
def test_byte_level_text_comes_back_as_it_was(byte_level: Tokenizer, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text, allow_special=False)) == text
    assert byte_level.decode(byte_level.encode(text, allow_special=True)) == text


def test_the_default_model_gives_text_back_but_for_bytes_it_has_no_token_for(default_tokenizer: Tokenizer) -> None:
    """Its vocabulary lacks six control characters and the lead bytes of U+40000 to U+BFFFF; such characters vanish."""
    covered = set(b"".join(default_tokenizer.byte_table(skip_special=True)))

    @given(text=TEXTS)
    @example(text=f" leading, trailing \r\n\t\0 é 中 😀 {FAMILY} e\u0301\u0301 ")
    def comes_back(text: str) -> None:
        kept = "".join(character for character in text if covered.issuperset(character.encode()))
        assert default_tokenizer.decode(default_tokenizer.encode(kept, allow_special=False)) == kept

    comes_back()
    assert {byte for byte in range(128) if byte not in covered} == {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D}


@given(text=TEXTS)
def test_sentencepiece_text_comes_back_but_for_its_visible_space(sentencepiece: Tokenizer, text: str) -> None:
    ids = sentencepiece.encode(text, allow_special=False)
    assert not any(map(sentencepiece.is_special, ids))
    assert sentencepiece.decode(ids) == text.replace("\u2581", " ")


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(sentencepiece: Tokenizer) -> None:
    def spelled(text: str) -> list[str]:
        named = {sentencepiece.token_id(piece): piece for piece in [*vocabularies.PIECES, *vocabularies.CHARACTERS]}
        return [
            named.get(each, repr(sentencepiece.token_bytes(each)))
            for each in sentencepiece.encode(text, allow_special=True)
        ]

    assert spelled("hello world") == ["▁hello", "▁wor", "l", "b'd'"]
    assert spelled("el") == ["▁", "el"]
    assert spelled("é") == ["▁", r"b'\xc3'", r"b'\xa9'"]
    # "<0x41>" is text, never the byte token of that name; a special token starts a new piece, with its own leading space.
    assert "b'A'" not in spelled("<0x41>")
    assert spelled("<s>he") == ["b'<s>'", "▁he"]


@given(ids=st.lists(st.integers(3, 258 + len(vocabularies.PIECES)), max_size=12))
def test_sentencepiece_decodes_as_the_library_does_where_bytes_are_valid(
    sentencepiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory, ids: list[int]
) -> None:
    """Research item 4: no space lost or added. (The library writes one U+FFFD for each byte of an invalid run; we do not.)"""
    library = _library(vocabularies.sentencepiece(tmp_path_factory.getbasetemp() / "outside.gguf"))
    expected = library.decode(ids, skip_special_tokens=False)
    if "\ufffd" not in expected:
        assert sentencepiece.decode(ids) == expected


def _library(path: Path) -> tokenizers.Tokenizer:
    with open_gguf(path) as file:
        return tokenizers.Tokenizer.from_buffer(prepare_tokenizer(file)[0])


def test_every_token_of_the_default_model_has_the_librarys_bytes(
    default_tokenizer: Tokenizer, default_gguf: Path
) -> None:
    library = _library(default_gguf)
    for token_id in range(0, default_tokenizer.vocabulary_size, 7):
        piece = default_tokenizer.token_bytes(token_id)
        assert piece.decode("utf-8", errors="replace") == library.decode([token_id], skip_special_tokens=False)


def test_user_defined_tokens_are_found_in_user_text_and_are_shown(byte_level: Tokenizer) -> None:
    think = byte_level.token_id("<think>")
    assert think is not None
    assert byte_level.encode("a<think>", allow_special=False)[-1] == think
    assert not byte_level.is_special(think)
    assert byte_level.decode([think], skip_special=True) == "<think>"


def test_special_tokens_are_their_spelling_or_nothing(byte_level: Tokenizer) -> None:
    end = byte_level.token_id("<|end|>")
    assert end is not None
    assert byte_level.token_bytes(end) == b"<|end|>"
    hello = byte_level.encode("hello<|end|>", allow_special=True)
    assert byte_level.decode(hello) == "hello<|end|>"
    assert byte_level.decode(hello, skip_special=True) == "hello"
    assert byte_level.byte_table(skip_special=True)[end] == b""


def test_an_unknown_spelling_has_no_id(byte_level: Tokenizer) -> None:
    assert byte_level.token_id("not a token") is None


@pytest.mark.parametrize("token_id", [-1, 49_152, 2**31 - 1, 2**63])
def test_an_id_out_of_range_is_the_callers_error(default_tokenizer: Tokenizer, token_id: int) -> None:
    """Research item 34."""
    for call in (
        default_tokenizer.token_bytes,
        default_tokenizer.is_special,
        lambda bad: default_tokenizer.decode([1, bad]),
    ):
        with pytest.raises(InvalidValueError, match=f"token id {token_id} is not in the vocabulary of 49,152 tokens"):
            call(token_id)


@pytest.mark.parametrize("allow_special", [False, True])
def test_a_lone_surrogate_is_the_callers_error(byte_level: Tokenizer, allow_special: bool) -> None:
    with pytest.raises(InvalidValueError, match=r"lone surrogate U\+D83D at character 2"):
        byte_level.encode("hi\ud83d", allow_special=allow_special)


def test_threads_with_different_permissions_do_not_disturb_each_other(default_tokenizer: Tokenizer) -> None:
    text = "a<|im_end|>b"
    expected = {allowed: default_tokenizer.encode(text, allow_special=allowed) for allowed in (False, True)}
    with ThreadPoolExecutor(4) as pool:
        allowed = [index % 2 == 0 for index in range(400)]
        for each, ids in zip(
            allowed, pool.map(lambda flag: default_tokenizer.encode(text, allow_special=flag), allowed), strict=True
        ):
            assert ids == expected[each]


def _bpe(**model: object) -> bytes:
    """A tokenizer.json around these settings of its model."""
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    settings = {"type": "BPE", "vocab": {"a": 0}, "merges": [], **model}
    return json.dumps({"version": "1.0", "decoder": decoder, "model": settings}).encode()


@pytest.mark.parametrize(
    ("asset", "message"),
    [
        (b"", "not a tokenizer.json"),
        (b"\xff", "not a tokenizer.json"),
        (b"[]", "not a tokenizer.json"),
        (b'{"version":"1.0"}', "not a tokenizer.json"),
        (b'{"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":[]}}', "names no decoder"),
        (
            b'{"version":"1.0","decoder":{"type":"BPEDecoder","suffix":"</w>"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}',
            "has the decoder",
        ),
        (
            b'{"version":"1.0","decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true},"model":{"type":"BPE","vocab":{},"merges":[]}}',
            "largest token id is -1",
        ),
        (
            b'{"version":"1.0","decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true},"model":{"type":"BPE","vocab":{"a":4000000000},"merges":[]}}',
            "largest token id is 4,000,000,000",
        ),
        (_bpe(unk_token="gone"), "Unk token `gone` not found in the vocabulary"),
        (_bpe(vocab={"a": 0, "b": 1, "ab": 2}, merges=["a b"], continuing_subword_prefix="ab#"), "out of range"),
    ],
)
def test_an_asset_that_is_no_usable_tokenizer_is_refused(asset: bytes, message: str) -> None:
    with pytest.raises(CoreError, match=message):
        Tokenizer.from_bytes(asset)


def test_a_single_token_is_one_that_spells_all_of_a_text(byte_level: Tokenizer, sentencepiece: Tokenizer) -> None:
    """FE-3: an added token or an ordinary one; the space that SentencePiece adds in front makes it another text."""
    assert byte_level.single_token("<think>") == byte_level.token_id("<think>")
    assert byte_level.single_token("<|end|>") == byte_level.token_id("<|end|>")
    assert byte_level.single_token("hello") == byte_level.token_id("hello")
    assert byte_level.single_token("hello world") is None
    assert byte_level.single_token("") is None
    assert sentencepiece.single_token("</s>") == sentencepiece.token_id("</s>")
    assert sentencepiece.single_token("hello") is None


def test_added_tokens_are_those_with_a_spelling_of_their_own(byte_level: Tokenizer) -> None:
    assert byte_level.added_tokens == {each: byte_level.token_id(each) for each in ("<|end|>", "<think>")}


@pytest.fixture(scope="module", params=[vocabularies.byte_level, vocabularies.sentencepiece])
def asset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _asset(request.param, tmp_path_factory)


@given(text=TEXTS)
def test_plain_text_has_the_tokens_that_a_tokenizer_of_its_own_gives_it(asset: bytes, text: str) -> None:
    """Both halves of a `Tokenizer` use one model; the library alone, read for this, agrees where nothing is respelled."""
    alone = tokenizers.Tokenizer.from_buffer(asset)
    alone.encode_special_tokens = True
    ids = alone.encode(text, add_special_tokens=False).ids
    tokenizer = Tokenizer.from_bytes(asset)
    if not any(map(tokenizer.is_special, ids)) and tokenizer.token_id("<unk>") not in ids:
        assert tokenizer.encode(text, allow_special=False) == ids


@pytest.mark.parametrize("cut", [{"truncation": {"max_length": 3}}, {"padding": {"length": 9}}])
def test_an_asset_neither_cuts_nor_fills_up_what_is_encoded(
    tmp_path_factory: pytest.TempPathFactory, cut: dict[str, dict[str, int]]
) -> None:
    asset = _asset(vocabularies.byte_level, tmp_path_factory)
    library = tokenizers.Tokenizer.from_buffer(asset)
    if "truncation" in cut:
        library.enable_truncation(3)
    else:
        library.enable_padding(length=9)
    tokenizer = Tokenizer.from_bytes(library.to_str().encode())
    for allow_special in (False, True):
        assert tokenizer.decode(tokenizer.encode("xyzxyz", allow_special=allow_special)) == "xyzxyz"


def test_added_tokens_in_any_order_and_with_gaps_keep_their_ids(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = json.loads(_asset(vocabularies.byte_level, tmp_path_factory))
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    settings["added_tokens"].insert(0, {"id": 4000, "content": "<later>", "special": True, **plain})
    asset = json.dumps(settings).encode()
    ids = {text: id_ for id_, text in _added(tokenizers.Tokenizer.from_buffer(asset)).items()}
    tokenizer = Tokenizer.from_bytes(asset)
    assert tokenizer.added_tokens == ids
    assert tokenizer.encode("<later><|end|>", allow_special=True) == [ids["<later>"], ids["<|end|>"]]
    assert tokenizer.decode(tokenizer.encode("<later>", allow_special=False)) == "<later>"


def test_guarded_tokens_are_special_in_plain_text_alone(byte_level: Tokenizer) -> None:
    think = byte_level.single_token("<think>")
    guarded = byte_level.guarded(["<think>"])
    assert think in byte_level.encode("<think>", allow_special=False)
    assert think not in guarded.encode("<think>", allow_special=False)
    assert guarded.byte_table(skip_special=False) is byte_level.byte_table(skip_special=False)


def _asset(kind: Callable[[Path], Path], factory: pytest.TempPathFactory) -> bytes:
    with open_gguf(kind(factory.mktemp("asset") / "model.gguf")) as file:
        return prepare_tokenizer(file)[0]


def _added(library: tokenizers.Tokenizer) -> dict[int, str]:
    return {id_: token.content for id_, token in library.get_added_tokens_decoder().items()}
