// x[i] = the weight row of token row_token[i], as float: w = d*q + m, d*(q-8), d*q, or the element itself.
// Reads one lane of a group of rows in the same layouts as the linear maps, because a tied head shares the tensor.
// Bound: n_rows * hidden * (element bytes * 8 + 4) bytes through the cache, negligible beside any linear map.
// A token outside [0, vocabulary) leaves its row as it is.
#include "g16_block.h"
#include "host.h"
#include "q8_rows.h"
#include "vec.h"

namespace helios {
namespace {

struct Q4Rows {  // shared by both nibble formats
  static HELIOS_INLINE int nibble(const uint8_t* block, int lane, int input) {
    const uint8_t byte = block[input / 8 * 32 + lane * 4 + input % 4];
    return input % 8 < 4 ? byte & 15 : byte >> 4;
  }
  static HELIOS_INLINE float half_at(const uint8_t* p, int lane) {
    uint16_t bits;
    memcpy(&bits, p + 2 * lane, 2);
    return half_to_float(bits);
  }
};
struct EmbedQ4_1 : Q4Rows {
  static constexpr int kRows = 8, kUnit = kBlock, kUnitBytes = 160;
  static void unit(const uint8_t* block, int lane, float* x) {
    const float d = half_at(block + 128, lane), m = half_at(block + 144, lane);
    for (int i = 0; i < kBlock; i++) x[i] = d * float(nibble(block, lane, i)) + m;
  }
};
struct EmbedQ4_0 : Q4Rows {
  static constexpr int kRows = 8, kUnit = kBlock, kUnitBytes = 144;
  static void unit(const uint8_t* block, int lane, float* x) {
    const float d = half_at(block + 128, lane);
    for (int i = 0; i < kBlock; i++) x[i] = d * float(nibble(block, lane, i) - 8);
  }
};
struct EmbedQ8_0 {
  static constexpr int kRows = 8, kUnit = kBlock, kUnitBytes = 272;
  static void unit(const uint8_t* block, int lane, float* x) {
    const float d = Q4Rows::half_at(block + 256, lane);
    for (int i = 0; i < kBlock; i++) x[i] = d * float(int8_t(block[i / 4 * 32 + lane * 4 + i % 4]));
  }
};
template <class Element>
struct EmbedFloat {
  static constexpr int kRows = 8, kUnit = 1, kUnitBytes = 8 * sizeof(Element);
  static void unit(const uint8_t* inputs, int lane, float* x) {
    Element element;
    memcpy(&element, inputs + sizeof(Element) * lane, sizeof element);
    *x = element_to_float(element);
  }
};

template <class Block>
struct EmbedG16 {
  static constexpr int kRows = kG16Rows, kUnit = kG16Inputs, kUnitBytes = Block::kNbytes;
  static void unit(const uint8_t* block, int lane, float* x) {
    float d = 1, m = 0;
    if constexpr (Block::kHasScale) d = half_to_float(Block::scales(block)[lane].bits);
    if constexpr (Block::kHasOffset) m = half_to_float(Block::offsets(block)[lane].bits);
    for (int i = 0; i < kUnit; i++) x[i] = d * Block::value(block, lane, i) + m;
  }
};

template <class Args, class Format>
struct Embed {
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.rows_capacity <= 0 || !is_width(a.hidden) || a.hidden % Format::kUnit || !is_width(a.vocabulary))
      return false;
    e.counts = Size(16);
    e.row_token = Size(a.rows_capacity) * 4;
    e.weight = divide_up(Size(a.vocabulary), Format::kRows) * (a.hidden / Format::kUnit) * Format::kUnitBytes;
    e.x = Size(a.rows_capacity) * a.hidden * 4;
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) {
    return row_tasks(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), a.hidden);
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const Span rows = part_of(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), task, n_tasks);
    const int32_t n_units = a.hidden / Format::kUnit;
    for (int32_t i = rows.begin; i < rows.end; i++) {
      const int32_t token = as<int32_t>(a.row_token)[i];
      if (!in_range(token, a.vocabulary)) continue;
      const uint8_t* group = as<uint8_t>(a.weight) + int64_t(token / Format::kRows) * n_units * Format::kUnitBytes;
      float* x = as<float>(a.x) + int64_t(i) * a.hidden;
      for (int32_t u = 0; u < n_units; u++)
        Format::unit(group + int64_t(u) * Format::kUnitBytes, token % Format::kRows, x + int64_t(u) * Format::kUnit);
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(embed_q4_1, Embed<HeliosArgs_embed_q4_1, EmbedQ4_1>)
HELIOS_HOST_KERNEL(embed_q4_0, Embed<HeliosArgs_embed_q4_0, EmbedQ4_0>)
HELIOS_HOST_KERNEL(embed_q8_0, Embed<HeliosArgs_embed_q8_0, EmbedQ8_0>)
HELIOS_HOST_KERNEL(embed_f32, Embed<HeliosArgs_embed_f32, EmbedFloat<float>>)
HELIOS_HOST_KERNEL(embed_f16, Embed<HeliosArgs_embed_f16, EmbedFloat<Half>>)
HELIOS_HOST_KERNEL(embed_bf16, Embed<HeliosArgs_embed_bf16, EmbedFloat<Bfloat>>)
HELIOS_HOST_KERNEL(embed_q4_1_g16, Embed<HeliosArgs_embed_q4_1_g16, EmbedG16<Q4G16<true>>>)
HELIOS_HOST_KERNEL(embed_q4_0_g16, Embed<HeliosArgs_embed_q4_0_g16, EmbedG16<Q4G16<false>>>)
HELIOS_HOST_KERNEL(embed_q8_0_g16, Embed<HeliosArgs_embed_q8_0_g16, EmbedG16<Q8G16>>)
HELIOS_HOST_KERNEL(embed_bf16_g16, Embed<HeliosArgs_embed_bf16_g16, EmbedG16<FloatG16<Bfloat>>>)
HELIOS_HOST_KERNEL(embed_f16_g16, Embed<HeliosArgs_embed_f16_g16, EmbedG16<FloatG16<Half>>>)

}  // namespace helios
