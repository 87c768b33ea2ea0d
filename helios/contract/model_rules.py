"""Rules over the serving metadata: identity, vocabulary, capacities, sampling defaults.

They know no program and no buffer, only the numbers that the rest of the contract is measured against.
"""

from __future__ import annotations

from helios.contract.rule import Rule, Subject, Violations, repeated, rule

MAX_VOCABULARY = 1 << 24
MAX_CONTEXT_TOKENS = 1 << 24
MAX_SLOTS = 4096
CACHE_IDENTITY_NBYTES = 32


@rule("identity", "requests choose a model by name, and the prefix cache by its identity")
def identity(subject: Subject) -> Violations:
    names = [subject.serving.served_id, *subject.serving.aliases]
    for name in names:
        if not 0 < len(name) <= 200 or not name.isprintable() or name != name.strip():
            yield f"served name {name[:200]!r} is not 1 to 200 printable characters"
    for name in repeated(names):
        yield f"served name {name!r} is given twice"
    n_bytes = len(subject.serving.cache_identity)
    if n_bytes != CACHE_IDENTITY_NBYTES:
        yield f"field 'cache_identity' has {n_bytes} bytes, not {CACHE_IDENTITY_NBYTES}"


@rule("vocabulary", "histogram, mask and logits have one column for each sampled token")
def vocabulary(subject: Subject) -> Violations:
    model = subject.model
    if not 0 < model.vocabulary <= MAX_VOCABULARY:
        yield f"field 'vocabulary' is {model.vocabulary:,}, not 1 to {MAX_VOCABULARY:,}"
    if not model.vocabulary <= model.input_vocabulary <= MAX_VOCABULARY:
        yield (
            f"field 'input_vocabulary' is {model.input_vocabulary:,}, "
            f"not {model.vocabulary:,} (the vocabulary) to {MAX_VOCABULARY:,}"
        )


@rule("capacities", "every request must find its slot and its pages in what was prepared")
def capacities(subject: Subject) -> Violations:
    serving, manifest, page_tokens = subject.serving, subject.manifest, subject.model.cache.page_tokens
    if not 0 < manifest.request_slots <= MAX_SLOTS:
        yield f"field 'request_slots' is {manifest.request_slots:,}, not 1 to {MAX_SLOTS:,}"
    if not 0 < serving.concurrency <= manifest.request_slots:
        yield f"field 'concurrency' is {serving.concurrency:,}, not 1 to {manifest.request_slots:,} (the request slots)"
    if page_tokens == 0:
        yield "field 'page_tokens' is 0, a page holds at least 1 token"
    n_positions = manifest.pages_per_slot * page_tokens
    if not 0 < serving.context_tokens <= min(n_positions, MAX_CONTEXT_TOKENS):
        yield (
            f"field 'context_tokens' is {serving.context_tokens:,}, a slot holds {manifest.pages_per_slot:,} pages "
            f"of {page_tokens:,} tokens, {n_positions:,} in all"
        )
    if serving.prefill_tokens == 0:
        yield "field 'prefill_tokens' is 0, a round feeds at least 1 prompt token"


# Field: (least, most, whether the least itself is refused).
_SAMPLING_RANGES = {
    "temperature": (0.0, 100.0, False),
    "top_p": (0.0, 1.0, True),
    "min_p": (0.0, 1.0, False),
    "repetition_penalty": (0.0, 100.0, True),
    "frequency_penalty": (-2.0, 2.0, False),
    "presence_penalty": (-2.0, 2.0, False),
}


@rule("sampling-defaults", "a default is a value that a request could have asked for")
def sampling_defaults(subject: Subject) -> Violations:
    sampling = subject.serving.sampling
    for name, (low, high, is_open) in _SAMPLING_RANGES.items():
        value = getattr(sampling, name)
        is_inside = low <= value <= high and not (is_open and value == low)
        if sampling.HasField(name) and not is_inside:
            yield f"sampling, field {name!r} is {value:g}, not {'above ' if is_open else ''}{low:g} to {high:g}"
    if sampling.top_k > MAX_VOCABULARY:
        yield f"sampling, field 'top_k' is {sampling.top_k:,}, not 0 to {MAX_VOCABULARY:,}"


RULES: tuple[Rule, ...] = (identity, vocabulary, capacities, sampling_defaults)
