"""Helios: a language-model server in one file. This docstring is the map.

    cli         one file a verb: serve, prepare, pull, inspect, verify, keygen, chat, bench
    server      HTTP/1.1, SSE, OpenAI JSON, gRPC, metrics; `status.py` alone maps errors to statuses
    engine      the life of a request, with exactly one ending; Bootstrap
    runtime     ModelRuntime: load, frames, completions, worker loop (may use scheduler)
    scheduler   lifecycle, admission, cohort and program choice; pure, clock injected
    prompt      request -> tokens
    output      tokens -> answer events: text, stops, reasoning, tool calls
    ignition    checkpoint -> core: recipes, preparation, checkpoint readers, capture
    contract    the .proto files, generated messages, validation into PreparedContract
    corefile    .core containers: envelope, signatures, frames, authorize
    tokenizer   vocabulary facts and incremental decoding
    device      the one C ABI (a cudart subset): ctypes table, memory, events, graphs, kernel library
    packing     value sources -> bytes in a staging frame
    cache       books of pages; numbers only, no device
    errors settings metrics owner    leaves, importable from everywhere

Imports point down: cli > server > engine > {runtime, scheduler, prompt, output, ignition} > {contract, tokenizer, corefile,
device, packing, cache} > {errors, settings, metrics, owner}. The middle row never imports itself sideways, except that runtime
may use scheduler; in the row below it `contract` is the lowest and the others may use it. `tests/repo/test_layers.py` keeps this
true.

Glossary: *core*, a prepared model file; *program*, one captured graph; *frame*, one of two execution frames; *chunk*, 4 MiB of a
stored frame, while a *prefill chunk* is part of a prompt; *page*, KV storage of 16 tokens; *slot*, a request's row in device state;
*lane*, a row of one submission; *snapshot*, committed state at a token.
"""
