// The kernel vocabulary: one plain argument struct for each kernel, shared by every device and by the programs in a core.
// A kernel takes its struct by value. What a kernel may touch through each pointer follows from the struct's own integers
// (`extent` in the table below), so a loader can prove that a launch stays inside its buffers before it runs.
// A name ends in a version; a changed meaning is a new name, and old names stay, so that old cores keep running (CORE-7).
//
// Shapes use these letters: R rows capacity of the program (packed tokens, P), B lanes capacity, S request slots,
// H hidden size, V vocabulary, K inputs and N outputs of a linear map, HD head dimension, NQ and NKV heads.
// "Live" counts are read from device memory while the kernel runs; rows at and past the live count are left as they are.
#pragma once
#include <stddef.h>
#include <stdint.h>

// ---------------------------------------------------------------------------------------------------------------------
// Fixed layouts that several kernels and the host share.

// counts, int32[4]: written by row_table, read by all others.
enum { HELIOS_COUNT_ROWS = 0, HELIOS_COUNT_LANES = 1, HELIOS_COUNT_SAMPLES = 2, HELIOS_COUNT_RESERVED = 3 };

// Where a lane's tokens come from.
enum { HELIOS_TOKENS_PENDING = 0 /* the slot's own pending token */, HELIOS_TOKENS_PROMPT = 1 /* the staged prompt tokens */ };

// Why a lane's request ended on the device.
enum { HELIOS_FINISH_NONE = 0, HELIOS_FINISH_EOS = 1, HELIOS_FINISH_LIMIT = 2 };

enum { HELIOS_MAX_EOS = 16, HELIOS_MAX_BIAS = 1024, HELIOS_MAX_CANDIDATES = 20, HELIOS_PAGE_TOKENS = 16, HELIOS_SEGMENT = 256 };

enum {
  HELIOS_SAMPLING_PENALTIES = 1,  // a penalty is not neutral: the histogram row is kept and read
  HELIOS_SAMPLING_LOGPROBS = 2,   // log-probabilities (and n_candidates best tokens) are reported
  HELIOS_SAMPLING_BIAS = 4,       // n_bias entries of the bias row apply
  HELIOS_SAMPLING_DISTRIBUTION = 8,         // with LOGPROBS: the whole row that each token is sampled from is reported
  HELIOS_SAMPLING_PROMPT_DISTRIBUTION = 16, // the same for each row that a scored prefill feeds
};

// One row of the sampling state, 256 bytes, written by slot_init from the staged copy, then owned by the device.
typedef struct {
  float temperature;         // 0: greedy (largest logit, lowest id on a tie)
  float top_p, min_p;        // 1 and 0: off
  float repetition_penalty;  // 1: off; over prompt and output
  float frequency_penalty, presence_penalty;  // 0: off; over output only
  int32_t top_k;             // 0: off
  uint32_t flags;            // HELIOS_SAMPLING_*
  uint32_t seed[2];
  int32_t output_limit;      // most tokens this request may emit
  int32_t n_bias;
  int32_t n_candidates;      // 0..HELIOS_MAX_CANDIDATES
  int32_t n_eos;
  int32_t eos[HELIOS_MAX_EOS];
  int32_t reserved[34];
} HeliosSamplingRow;

// One row of the request state, 32 bytes, by slot.
typedef struct {
  int32_t pending_token;  // sampled but not yet consumed; -1: none
  int32_t consumed;       // tokens whose keys and values are in the cache
  int32_t emitted;        // output tokens so far
  int32_t finish;         // HELIOS_FINISH_*; other than NONE: the lane makes no rows and emits nothing
  uint32_t generation;
  int32_t reserved[3];
} HeliosRequestRow;

// The completion record (ABI 6), little-endian: one header, then one lane record for each submitted lane.
typedef struct {
  uint64_t sequence;  // submission sequence, as staged
  uint32_t program;   // program index, as staged
  uint32_t n_lanes;
  uint32_t frame;     // frame index, as staged
  uint32_t reserved[3];
} HeliosCompletionHeader;  // 32 bytes

typedef struct {
  int32_t slot;
  uint32_t generation;
  int32_t offered, accepted;  // speculation: 0
  int32_t emitted;            // 0 or 1 new token
  int32_t consumed;           // endpoint: tokens in the cache after this round
  int32_t draft_cursor;       // -1: none
  int32_t reserved_model;     // -1
  int32_t finish;             // HELIOS_FINISH_*
  int32_t token;              // -1 when nothing was emitted
  float logprob;              // natural log, of the unmodified distribution; 0 unless asked for
  int32_t rank;               // 1 = most likely; 0 unless asked for
  int32_t n_candidates;
  int32_t reserved[3];
  int32_t candidate_token[HELIOS_MAX_CANDIDATES];    // most likely first, lower id first on a tie
  float candidate_logprob[HELIOS_MAX_CANDIDATES];
} HeliosCompletionLane;  // 224 bytes

// Sizes above are part of the ABI.
#ifdef __cplusplus
static_assert(sizeof(HeliosSamplingRow) == 256 && sizeof(HeliosRequestRow) == 32, "state rows");
static_assert(sizeof(HeliosCompletionHeader) == 32 && sizeof(HeliosCompletionLane) == 224, "completion record");
#endif

// Quantised activations ("q8 rows", written by *_q8, read by linear*.q*): for live rows M and nb = K/32 blocks,
// int8 q[nb][M][32] at byte 0, then at byte R*K float s[nb][M][4] = {scale of the block's inputs 0..15, scale of 16..31,
// sum over both halves of scale * sum of q, 0}. R*K + R*K/2 bytes.
//
// Weight layouts (written by preparation): rows in groups of 8, N padded up with zero rows to a multiple of 8.
//   q4_1.g8k4  per (group, block of 32 inputs) 160 bytes: 4 x 32 bytes of nibbles (vector j, lane r, byte c: low nibble is
//              input 8j+c of row r, high nibble input 8j+4+c), then 8 fp16 d, 8 fp16 m.     w = d*q + m
//   q4_0.g8k4  144 bytes: the same nibbles, then 8 fp16 d.                                  w = d*(q-8)
//   q8_0.g8k4  272 bytes: 8 x 32 bytes (vector j, lane r, byte c = q[r][4j+c]), then 8 fp16 d.   w = d*q
//   f32.g8, f16.g8, bf16.g8   [group][input][8 rows] of the element.
//
// bf16 activations ("bf16 rows", written by *_bf16, read by linear*.g16k8): bf16 x[R][K], K a multiple of 32, then at byte R*K*2
// float sum[R][K/32]: the sum of each block of 32 of the rounded numbers, in an order of the device's own. R*K*2 + R*K/8 bytes.
//
// Weight layouts that they meet: rows in groups of 16, N padded up with zero rows to a multiple of 16, blocks of 32 inputs. Lane
// z*16 + r of a (group, block), z 0..3, r 0..15, holds inputs 8z..8z+7 of row r.
//   q4_1.g16k8  320 bytes: 64 lanes of 4 bytes, two 16-bit words p = 0, 1, bits 4j..4j+3 of word p are input 8z+2j+p; then
//               16 fp16 d, 16 fp16 m.                                                       w = d*q + m
//   q4_0.g16k8  288 bytes: the same lanes, then 16 fp16 d.                                  w = d*(q-8)
//   q8_0.g16k8  544 bytes: 64 lanes of 8 signed bytes, ascending, then 16 fp16 d.           w = d*q
//   bf16.g16k8, f16.g16k8  1,024 bytes: 64 lanes of 8 elements, ascending.
// (A pair of inputs of 16 rows is a row of an AMX tile; 8 inputs of a row are what a thread of mma.sync holds.)
//
// 12-bit activations ("q12 rows", written by *_q12, read by linear*.w12): K a multiple of 64. In every group of 512 inputs a row has
// a float s, in every half block of 16 a whole number c in 1..16, and for every input an int8 q in -127..127:  x = s * c * q.
//   s = amax(group) / 2032, c = ceil(amax(half) / (127*s)) clamped to 1..16, q = round(x / (s*c)) clamped; a group with amax <= 1e-30
//   has c = 1, q = 0; one with a NaN or an infinity also s = NaN.
// At byte 0 the numbers c*q = 256*upper + lower (lower in -128..127) in tiles: [ceil(R/16)][K/64] of int8 upper[16 rows][64], int8
// lower[16 rows][64] (of the last tile only live rows are written); then int8 q[R][K]; then int16 [R][K/32][4] = {c of inputs 0..15,
// c of 16..31, sum of c*q of 0..15, of 16..31}; then float s[R][ceil(K/512)].
// ceil(R/16)*16*K*2 + R*K + R*K/4 + R*ceil(K/512)*4 bytes.
//
// The weight layout that they meet:
//   w12.g16  rows in groups of 16, padded like g16k8, n_in a multiple of 64; of a group its blocks of 32 inputs, 320 bytes each: 4 x 64
//            bytes of nibbles q (vector j, lane r, byte c: low nibble is input 8j+c of row r, high nibble input 8j+4+c), 16 int16 k,
//            16 int16 j; then float S[ceil(K/512)][16 rows].      w = S * (k*q + j), |k*q + j| <= 2047 for every q in 0..15
// A group of 512 products of the whole numbers is below 2^31, so its sum is exact in any order. Beyond the bounds it wraps.
//
// KV cache, one plane for all layers: page p of a layer starts at plane + p*page_stride (the layer is in the relocation's
// offset); inside, for each KV head, by the format in the kernel's name (none: f16):
//   f16   64*HD bytes: K fp16 [HD][16 positions], then V fp16 [16 positions][HD].
//   bf16  64*HD bytes: K, then V, each bf16 [HD/8][16 positions][8 dimensions]: 8 x 16 bytes are a matrix of ldmatrix.
//   q8    32*HD + 128 bytes: K int8 [HD/4][16 positions][4 dimensions], V int8 [4][HD][4 positions], then f32 scales [2][16] of the
//         keys and of the values of each position. x = scale*q, scale = m/127, q = x * (127/m) to nearest even, m the largest |x|;
//         q are 0 when m <= 1e-30; the scale is NaN and q are 0 when some x is not finite.
// page_stride is a multiple of 16.
// page_table int32[S][pages_per_slot]: page ids of a slot's positions, 16 to a page.
// rope table f32 [n_positions][n_rot/2][2] = {cos, sin}.

// ---------------------------------------------------------------------------------------------------------------------
// The kernels. F(kind, name): R, W, X are pointers that are read, written, both, at a multiple of 4 bytes; R16, W16, X16 the same at
// a multiple of 16, which is what a GPU loads and stores at once; I int32, L int64, U uint32, S float32.

// Scatter newly assigned page-table entries. updates int32[updates_capacity][2] = {slot*pages_per_slot + index, page id};
// n_updates int32[1]. Entries outside the table are skipped.
#define HELIOS_page_table_update_1(F) \
  F(R, updates) F(R, n_updates) F(W, page_table) F(I, updates_capacity) F(I, n_slots) F(I, pages_per_slot)

// Expand lanes to rows. lane_* int32[B], n_lanes int32[1], prompt_tokens int32[R] (packed over the prompt lanes, in order),
// requests HeliosRequestRow[S]. Writes counts, row_token/row_position/row_slot/row_identity int32[R] (row_identity[i] = i),
// lane_first_row int32[B] (-1: the lane is finished or stale (its generation differs) and makes no rows),
// sample_row and sample_lane int32[B] (the last row of each live lane with lane_sample != 0, in lane order).
// A pending lane has one row at position requests[slot].consumed; a prompt lane has lane_query_length rows from lane_position.
// Rows past R, positions past n_positions, tokens outside [0, vocabulary) end the lane's rows (the lane counts as dead).
#define HELIOS_row_table_1(F) \
  F(R, n_lanes) F(R, lane_slot) F(R, lane_generation) F(R, lane_source) F(R, lane_query_length) F(R, lane_position) \
  F(R, lane_sample) F(R, prompt_tokens) F(R, requests) F(W, counts) F(W, row_token) F(W, row_position) F(W, row_slot) \
  F(W, row_identity) F(W, lane_first_row) F(W, sample_row) F(W, sample_lane) \
  F(I, lanes_capacity) F(I, rows_capacity) F(I, n_slots) F(I, n_positions) F(I, vocabulary)

// x[i][:] = weight row row_token[i], as float. x f32[R][hidden]; weight in a linear layout with N = vocabulary, K = hidden.
#define HELIOS_embed_1(F) F(R, counts) F(R, row_token) F(R16, weight) F(W, x) F(I, rows_capacity) F(I, hidden) F(I, vocabulary)

// y[i] = x[rows[i]] / sqrt(mean(x^2) + epsilon) * weight for i < *n_rows. y: f32[R][width], q8, q12 or bf16 rows. x has x_rows rows.
#define HELIOS_rms_norm_1(F) \
  F(R, n_rows) F(R, rows) F(R, x) F(R, weight) F(W16, y) F(I, rows_capacity) F(I, x_rows) F(I, width) F(S, epsilon)

// y[i] = q8(x[i]); K = width.
#define HELIOS_quantize_q8_1(F) F(R, n_rows) F(R, x) F(W16, y) F(I, rows_capacity) F(I, width)
#define HELIOS_quantize_q12_1(F) HELIOS_quantize_q8_1(F)
// y[i] = x[i] rounded to bf16 rows; to nearest, ties to even.
#define HELIOS_round_bf16_1(F) HELIOS_quantize_q8_1(F)

// y[i][0..n_out) = W x[i]; x is q8 rows for the g8k4 layouts, f32[R][n_in] for the g8 ones, bf16 rows for g16k8, q12 rows for w12. y f32, row stride
// y_stride floats. linear_add: y += W x. linear_silu_gate: W holds gate and up interleaved by groups of rows (gate group 0, up
// group 0, gate group 1, ...), n_out counts the outputs (so W has 2*n_out rows): y = silu(gate) * up. n_out is a multiple of the
// group there (8 or 16).
// g16k8: blocks ascending, acc = fma(d_b, P_b, acc), P_b the float sum of the block's 32 products q*x (in float; a whole number of up
// to 8 bits is exact in bf16), its order the device's own; q4_1 adds fma(m_b, sum_b, acc) for each block. Float weights: acc + P_b,
// those of f16 as the sum of two bf16 numbers. A device may cut the blocks into parts, by their number alone, and add those in order.
// w12: groups of 512 inputs ascending from 0, acc = fma(float(sum of (k*q + j) * (c*q)) * S, s, acc).
#define HELIOS_linear_1(F) \
  F(R, n_rows) F(R16, x) F(R16, weight) F(W, y) F(I, rows_capacity) F(I, n_in) F(I, n_out) F(I, y_stride)
#define HELIOS_linear_add_1(F) \
  F(R, n_rows) F(R16, x) F(R16, weight) F(X, y) F(I, rows_capacity) F(I, n_in) F(I, n_out) F(I, y_stride)
#define HELIOS_linear_silu_gate_1(F) HELIOS_linear_1(F)

// y[i] += bias, f32[n_out]: the bias of a linear map, added after it.
#define HELIOS_add_bias_1(F) F(R, n_rows) F(R, bias) F(X, y) F(I, rows_capacity) F(I, n_out) F(I, y_stride)

// y[i] = silu(gate[i]) * up[i]; gate, up, y f32[R][width]; y may be gate.
#define HELIOS_silu_gate_1(F) F(R, n_rows) F(R, gate) F(R, up) F(W, y) F(I, rows_capacity) F(I, width)

// Rotate q and k of qkv f32[R][(NQ+2*NKV)*HD] in place, multiply q by q_scale, write k and v to the row's page.
// (.bf16.1 and .q8.1 here and below: the same over pages of that format.)
// rope_kv.interleaved.1 pairs (2i, 2i+1); rope_kv.half.1 pairs (i, i + n_rot/2). Dimensions past n_rot are not rotated.
#define HELIOS_rope_kv_1(F) \
  F(R, counts) F(R, row_position) F(R, row_slot) F(R, page_table) F(R, rope) F(X16, qkv) F(X16, kv) \
  F(I, rows_capacity) F(I, n_slots) F(I, pages_per_slot) F(I, n_pages) F(L, page_stride) \
  F(I, n_heads) F(I, n_kv_heads) F(I, head_dim) F(I, n_rot) F(I, n_positions) F(S, q_scale)

// Causal attention of each row over its slot's positions [0, row_position]. Positions go in segments of 256, merged ascending:
// the same bits for any batch, chunk and number of threads, in both kernels. out f32[R][NQ*HD].
// attention: a task does all segments of a row. attention_split: tasks are (row, kv head, segment) into
// partials f32[R][NQ][max_segments][HD+2]; attention_merge combines them.
#define HELIOS_attention_1(F) \
  F(R, counts) F(R, row_position) F(R, row_slot) F(R, page_table) F(R, qkv) F(R16, kv) F(W, out) \
  F(I, rows_capacity) F(I, n_slots) F(I, pages_per_slot) F(I, n_pages) F(L, page_stride) \
  F(I, n_heads) F(I, n_kv_heads) F(I, head_dim)
#define HELIOS_attention_split_1(F) \
  F(R, counts) F(R, row_position) F(R, row_slot) F(R, page_table) F(R, qkv) F(R16, kv) F(W, partials) \
  F(I, rows_capacity) F(I, n_slots) F(I, pages_per_slot) F(I, n_pages) F(L, page_stride) \
  F(I, n_heads) F(I, n_kv_heads) F(I, head_dim) F(I, max_segments)
#define HELIOS_attention_merge_1(F) \
  F(R, counts) F(R, row_position) F(R, partials) F(W, out) \
  F(I, rows_capacity) F(I, n_heads) F(I, head_dim) F(I, max_segments)

// Set up slots. For i < *n_lanes: sampling row <- staged_sampling[i], bias row <- staged_bias[i] (n_bias entries), request row
// <- {pending -1, consumed lane_position[i], emitted 0, finish NONE, generation lane_generation[i]}; with PENALTIES set the
// histogram row <- staged_histogram[i]. staged_bias {int32 id, float value}[B][HELIOS_MAX_BIAS]; staged_histogram uint32[B][V].
// A histogram word counts output tokens in its low 31 bits; the top bit says that the token is in the prompt.
#define HELIOS_slot_init_1(F) \
  F(R, n_lanes) F(R, lane_slot) F(R, lane_generation) F(R, lane_position) F(R, staged_sampling) F(R, staged_bias) \
  F(R, staged_histogram) F(W, requests) F(W, sampling) F(W, bias) F(W, histogram) F(I, lanes_capacity) F(I, n_slots) F(I, vocabulary)

// Choose a token for each sample row. Order: logits -> logit bias -> penalties -> mask -> temperature -> top-k -> top-p -> min-p
// (kept tokens renormalised after each) -> one draw u(seed, position, purpose 0) against the running sum in id order.
// mask uint32[B][ceil(V/32)] is read for lanes with lane_masked != 0 (bit set: allowed).
// Log-probabilities are of the raw logits. logits f32[B][V] and samples HeliosSample[B] go by sample index; a draw's position is
// its sample row's. A sample whose row, lane or slot does not exist gets token -1, which commit does not emit.
typedef struct { int32_t token; float logprob; int32_t rank, n_candidates; int32_t candidate_token[HELIOS_MAX_CANDIDATES]; float candidate_logprob[HELIOS_MAX_CANDIDATES]; } HeliosSample;
#define HELIOS_sample_1(F) \
  F(R, counts) F(R, sample_row) F(R, sample_lane) F(R, row_position) F(R, row_slot) F(R, lane_masked) F(R, mask) F(R, sampling) F(R, bias) \
  F(R, histogram) F(X, logits) F(W, samples) F(I, lanes_capacity) F(I, rows_capacity) F(I, n_slots) F(I, vocabulary)

// Commit the round: advance each live lane's request row by its rows, append its sample (pending token, emitted, histogram
// with PENALTIES), decide EOS and limit, and write the completion record: header from staged {sequence lo, hi, program, frame}
// uint32[4], then one lane record for each submitted lane; a dead lane reports emitted 0 and its state as it is.
#define HELIOS_commit_1(F) \
  F(R, n_lanes) F(R, lane_slot) F(R, lane_generation) F(R, lane_source) F(R, lane_query_length) F(R, lane_position) F(R, lane_sample) \
  F(R, lane_first_row) F(R, counts) F(R, sample_lane) F(R, samples) F(R, submission) F(R, sampling) F(X, requests) F(X, histogram) \
  F(W, completion) F(I, lanes_capacity) F(I, n_slots) F(I, vocabulary)

// Score prompts: for each live row i, scores[i] <- {targets[i], its log-probability and rank, the n_candidates best tokens} of
// logits row i, all of the raw distribution. targets int32[R]: the token that follows row i's in its prompt. logits f32[R][V],
// scores HeliosSample[R]. A target outside [0, vocabulary) is none: its score has token -1 and nothing else.
#define HELIOS_score_1(F) \
  F(R, counts) F(R, targets) F(R, logits) F(W, scores) F(I, rows_capacity) F(I, vocabulary) F(I, n_candidates)

// Report whole distributions: of the rows i < *n_rows, those whose slot's sampling row has `flag` go to distributions[0],
// [1], ... in order, distributions_capacity of them at most. Slot row_slot[rows[i]], logits f32[logits_capacity][V] row i as the model
// gave it. A distribution is HELIOS_DISTRIBUTION_NBYTES(V) long: double log_total, 8 bytes of zero, then float logits[V] (NaN as
// -infinity, +infinity as 3e38): a token's log-probability is the one of `sample`, max(float(double(logit) - log_total), -9999).
#define HELIOS_DISTRIBUTION_NBYTES(vocabulary) (16 + ((int64_t)(vocabulary) + 3) / 4 * 16)
#define HELIOS_distribution_1(F) \
  F(R, n_rows) F(R, rows) F(R, row_slot) F(R, sampling) F(R, logits) F(W16, distributions) F(U, flag) \
  F(I, logits_capacity) F(I, rows_capacity) F(I, n_slots) F(I, vocabulary) F(I, distributions_capacity)

// Copy partial pages between the cache and rows of state. For i < *n_lanes: the page of slot lane_slot[i] in which position
// lane_endpoint[i] lies <-> row lane_row[i] of rows [n_rows][row_stride bytes]; page_nbytes from kv + page*page_stride on.
// page_save fills the row, page_restore the page. An endpoint on a page boundary has no partial page: its lane is skipped, as
// is one whose slot, row, page index or page id does not exist. All positions are copied; those from the endpoint on mean nothing.
#define HELIOS_page_save_1(F) \
  F(R, n_lanes) F(R, lane_slot) F(R, lane_endpoint) F(R, lane_row) F(R, page_table) F(R, kv) F(W, rows) \
  F(I, lanes_capacity) F(I, n_slots) F(I, pages_per_slot) F(I, n_pages) F(L, page_stride) F(L, page_nbytes) F(I, n_rows) \
  F(L, row_stride)
#define HELIOS_page_restore_1(F) \
  F(R, n_lanes) F(R, lane_slot) F(R, lane_endpoint) F(R, lane_row) F(R, page_table) F(R, rows) F(W, kv) \
  F(I, lanes_capacity) F(I, n_slots) F(I, pages_per_slot) F(I, n_pages) F(L, page_stride) F(L, page_nbytes) F(I, n_rows) \
  F(L, row_stride)

// Every kernel of the vocabulary: X(C identifier, registered name, argument list).
#define HELIOS_KERNELS(X) \
  X(page_table_update, "page_table_update.1", HELIOS_page_table_update_1) \
  X(row_table, "row_table.1", HELIOS_row_table_1) \
  X(embed_q4_1, "embed.q4_1.g8k4.1", HELIOS_embed_1) X(embed_q4_0, "embed.q4_0.g8k4.1", HELIOS_embed_1) \
  X(embed_q8_0, "embed.q8_0.g8k4.1", HELIOS_embed_1) X(embed_f32, "embed.f32.g8.1", HELIOS_embed_1) \
  X(embed_f16, "embed.f16.g8.1", HELIOS_embed_1) X(embed_bf16, "embed.bf16.g8.1", HELIOS_embed_1) \
  X(rms_norm, "rms_norm.1", HELIOS_rms_norm_1) X(rms_norm_q8, "rms_norm_q8.1", HELIOS_rms_norm_1) \
  X(quantize_q8, "quantize_q8.1", HELIOS_quantize_q8_1) \
  X(linear_q4_1, "linear.q4_1.g8k4.1", HELIOS_linear_1) X(linear_q4_0, "linear.q4_0.g8k4.1", HELIOS_linear_1) \
  X(linear_q8_0, "linear.q8_0.g8k4.1", HELIOS_linear_1) X(linear_f32, "linear.f32.g8.1", HELIOS_linear_1) \
  X(linear_f16, "linear.f16.g8.1", HELIOS_linear_1) X(linear_bf16, "linear.bf16.g8.1", HELIOS_linear_1) \
  X(linear_add_q4_1, "linear_add.q4_1.g8k4.1", HELIOS_linear_add_1) X(linear_add_q4_0, "linear_add.q4_0.g8k4.1", HELIOS_linear_add_1) \
  X(linear_add_q8_0, "linear_add.q8_0.g8k4.1", HELIOS_linear_add_1) X(linear_add_f32, "linear_add.f32.g8.1", HELIOS_linear_add_1) \
  X(linear_add_f16, "linear_add.f16.g8.1", HELIOS_linear_add_1) X(linear_add_bf16, "linear_add.bf16.g8.1", HELIOS_linear_add_1) \
  X(linear_silu_gate_q4_1, "linear_silu_gate.q4_1.g8k4.1", HELIOS_linear_silu_gate_1) \
  X(linear_silu_gate_q4_0, "linear_silu_gate.q4_0.g8k4.1", HELIOS_linear_silu_gate_1) \
  X(linear_silu_gate_q8_0, "linear_silu_gate.q8_0.g8k4.1", HELIOS_linear_silu_gate_1) \
  X(linear_silu_gate_f32, "linear_silu_gate.f32.g8.1", HELIOS_linear_silu_gate_1) \
  X(linear_silu_gate_f16, "linear_silu_gate.f16.g8.1", HELIOS_linear_silu_gate_1) \
  X(linear_silu_gate_bf16, "linear_silu_gate.bf16.g8.1", HELIOS_linear_silu_gate_1) \
  X(rms_norm_bf16, "rms_norm_bf16.1", HELIOS_rms_norm_1) X(round_bf16, "round_bf16.1", HELIOS_round_bf16_1) \
  X(embed_q4_1_g16, "embed.q4_1.g16k8.1", HELIOS_embed_1) X(linear_q4_1_g16, "linear.q4_1.g16k8.1", HELIOS_linear_1) \
  X(linear_add_q4_1_g16, "linear_add.q4_1.g16k8.1", HELIOS_linear_add_1) \
  X(linear_silu_gate_q4_1_g16, "linear_silu_gate.q4_1.g16k8.1", HELIOS_linear_silu_gate_1) \
  X(embed_q4_0_g16, "embed.q4_0.g16k8.1", HELIOS_embed_1) X(linear_q4_0_g16, "linear.q4_0.g16k8.1", HELIOS_linear_1) \
  X(linear_add_q4_0_g16, "linear_add.q4_0.g16k8.1", HELIOS_linear_add_1) \
  X(linear_silu_gate_q4_0_g16, "linear_silu_gate.q4_0.g16k8.1", HELIOS_linear_silu_gate_1) \
  X(embed_q8_0_g16, "embed.q8_0.g16k8.1", HELIOS_embed_1) X(linear_q8_0_g16, "linear.q8_0.g16k8.1", HELIOS_linear_1) \
  X(linear_add_q8_0_g16, "linear_add.q8_0.g16k8.1", HELIOS_linear_add_1) \
  X(linear_silu_gate_q8_0_g16, "linear_silu_gate.q8_0.g16k8.1", HELIOS_linear_silu_gate_1) \
  X(embed_bf16_g16, "embed.bf16.g16k8.1", HELIOS_embed_1) X(linear_bf16_g16, "linear.bf16.g16k8.1", HELIOS_linear_1) \
  X(linear_add_bf16_g16, "linear_add.bf16.g16k8.1", HELIOS_linear_add_1) \
  X(linear_silu_gate_bf16_g16, "linear_silu_gate.bf16.g16k8.1", HELIOS_linear_silu_gate_1) \
  X(embed_f16_g16, "embed.f16.g16k8.1", HELIOS_embed_1) X(linear_f16_g16, "linear.f16.g16k8.1", HELIOS_linear_1) \
  X(linear_add_f16_g16, "linear_add.f16.g16k8.1", HELIOS_linear_add_1) \
  X(linear_silu_gate_f16_g16, "linear_silu_gate.f16.g16k8.1", HELIOS_linear_silu_gate_1) \
  X(rms_norm_q12, "rms_norm_q12.1", HELIOS_rms_norm_1) X(quantize_q12, "quantize_q12.1", HELIOS_quantize_q12_1) \
  X(linear_w12, "linear.w12.g16.1", HELIOS_linear_1) X(linear_add_w12, "linear_add.w12.g16.1", HELIOS_linear_add_1) \
  X(linear_silu_gate_w12, "linear_silu_gate.w12.g16.1", HELIOS_linear_silu_gate_1) \
  X(add_bias, "add_bias.1", HELIOS_add_bias_1) X(silu_gate, "silu_gate.1", HELIOS_silu_gate_1) \
  X(rope_kv_interleaved, "rope_kv.interleaved.1", HELIOS_rope_kv_1) X(rope_kv_half, "rope_kv.half.1", HELIOS_rope_kv_1) \
  X(rope_kv_interleaved_bf16, "rope_kv.interleaved.bf16.1", HELIOS_rope_kv_1) X(rope_kv_half_bf16, "rope_kv.half.bf16.1", HELIOS_rope_kv_1) \
  X(rope_kv_interleaved_q8, "rope_kv.interleaved.q8.1", HELIOS_rope_kv_1) X(rope_kv_half_q8, "rope_kv.half.q8.1", HELIOS_rope_kv_1) \
  X(attention, "attention.1", HELIOS_attention_1) X(attention_split, "attention_split.1", HELIOS_attention_split_1) \
  X(attention_bf16, "attention.bf16.1", HELIOS_attention_1) X(attention_split_bf16, "attention_split.bf16.1", HELIOS_attention_split_1) \
  X(attention_q8, "attention.q8.1", HELIOS_attention_1) X(attention_split_q8, "attention_split.q8.1", HELIOS_attention_split_1) \
  X(attention_merge, "attention_merge.1", HELIOS_attention_merge_1) \
  X(slot_init, "slot_init.1", HELIOS_slot_init_1) X(sample, "sample.1", HELIOS_sample_1) X(commit, "commit.1", HELIOS_commit_1) \
  X(score, "score.1", HELIOS_score_1) X(distribution, "distribution.1", HELIOS_distribution_1) \
  X(page_save, "page_save.1", HELIOS_page_save_1) X(page_restore, "page_restore.1", HELIOS_page_restore_1)

// ---------------------------------------------------------------------------------------------------------------------
// Argument structs, generated: pointers are 8 bytes, L 8 bytes, the rest 4; natural alignment.
#define HELIOS_FIELD_R(name) const void* name;
#define HELIOS_FIELD_W(name) void* name;
#define HELIOS_FIELD_X(name) void* name;
#define HELIOS_FIELD_R16(name) HELIOS_FIELD_R(name)
#define HELIOS_FIELD_W16(name) HELIOS_FIELD_W(name)
#define HELIOS_FIELD_X16(name) HELIOS_FIELD_X(name)
#define HELIOS_FIELD_I(name) int32_t name;
#define HELIOS_FIELD_L(name) int64_t name;
#define HELIOS_FIELD_U(name) uint32_t name;
#define HELIOS_FIELD_S(name) float name;
#define HELIOS_FIELD(kind, name) HELIOS_FIELD_##kind(name)
#define HELIOS_STRUCT(id, name, list) typedef struct { list(HELIOS_FIELD) } HeliosArgs_##id;
HELIOS_KERNELS(HELIOS_STRUCT)

// The table that every kernel library exports as `const HeliosKernelLibrary* helios_kernel_library(void)`.
enum { HELIOS_KERNEL_ABI = 3 };
enum { HELIOS_KIND_READ = 0, HELIOS_KIND_WRITE = 1, HELIOS_KIND_READ_WRITE = 2, HELIOS_KIND_I32 = 3, HELIOS_KIND_I64 = 4, HELIOS_KIND_U32 = 5, HELIOS_KIND_F32 = 6 };
// `alignment`: what the address in a pointer field is a multiple of, in bytes; 0 of a number.
typedef struct { const char* name; uint32_t offset; uint16_t kind, alignment; } HeliosField;
// The launch that a kernel's scalar arguments ask for: one dimension of blocks and of threads. {1, 1, 0} for host kernels.
typedef struct { int64_t n_blocks; int32_t n_threads; int32_t shared_nbytes; } HeliosGeometry;
enum { HELIOS_KERNEL_WAITS = 1 /* waits itself for the kernels before it (griddepcontrol.wait) before it touches memory */ };
typedef struct {
  const char* name;
  uint32_t args_nbytes, n_fields;
  const HeliosField* fields;
  // Bytes that the kernel may touch from pointer field `field` on, for these scalar arguments; UINT64_MAX when they overflow or
  // are not acceptable (negative, zero width, K not a multiple of the block, head_dim too large ...).
  uint64_t (*extent)(const void* args, uint32_t field);
  // Only for scalar arguments whose extents are all acceptable. It does not depend on an argument that the loader sets (n_pages).
  void (*geometry)(const void* args, HeliosGeometry* geometry);
  uint32_t flags;  // HELIOS_KERNEL_*
  uint32_t reserved;
  // A kernel runs in one of three ways; the members of the other two are NULL.
  // Host kernels: the number of tasks for this launch (reads live counts), and one task. Any task may run on any thread.
  // 0 tasks is a launch that does nothing.
  int32_t (*n_tasks)(const void* args, int32_t n_threads);
  void (*run)(const void* args, int32_t task, int32_t n_tasks);
  // Emulated kernels: one block of the launch; not 0 when it failed. Any block may run on any thread.
  int32_t (*run_block)(const void* args, const HeliosGeometry* geometry, int32_t block);
  // CUDA kernels: the name of the image that has the kernel, and its symbol there.
  const char *image, *symbol;
} HeliosKernel;
typedef struct { const char* name; const void* data; size_t nbytes; } HeliosImage;  // a fat binary, for cudaLibraryLoadData
typedef struct {
  uint32_t abi, n_kernels;
  const HeliosKernel* kernels;
  const char* target;
  uint32_t n_images, reserved;
  const HeliosImage* images;
} HeliosKernelLibrary;
