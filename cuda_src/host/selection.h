// Top-k and top-p without sorting. A kept set is always a prefix of the order "larger logit first, lower id first on a
// tie", so it is a Cut: a logit, and the last id that still belongs among its equals. A cut is found by radix selection
// on the bits of the logit (11 + 11 + 10), counting tokens and mass from the top. It runs over the few thousand tokens
// near the largest logit; only when the goal is not among them, over the whole row again. The result depends on the row
// and the goal alone.
#pragma once
#include <float.h>

#include "logits.h"

namespace helios {

struct Cut {
  float logit = -INFINITY;
  int32_t last_equal = -1;

  // `weight` for tokens above the cut, else 0.
  HELIOS_INLINE Wide keep(Wide x, int32_t i, Wide weight) const {
    const Wide edge = splat<Wide>(logit), zero = splat<Wide>(0.f);
    const Wide if_equal = choose(greater(ids_from(i), splat<WideInt>(last_equal)), zero, weight);
    return choose(greater(x, edge), weight, choose(greater(edge, x), zero, if_equal));
  }
};
inline Cut tighter(Cut a, Cut b) {
  return a.logit > b.logit || (a.logit == b.logit && a.last_equal < b.last_equal) ? a : b;
}

class Selection {
 public:
  struct Goal {
    int64_t count;  // most tokens
    double mass;    // enough mass; infinite: only the count matters
  };
  struct Found {
    Cut cut;
    double mass;  // of the kept tokens
  };

  Selection(const Logits& logits, const Weights& weights) : logits_(logits), weights_(weights) {
    const float reach = 10.f / weights.inverse_temperature;
    gather_near(reach > 4.f ? reach : 4.f);
  }

  Found find(Goal goal) {
    Found found{{}, 0};
    float too_short = 0, too_long = INFINITY;
    for (int attempt = 0; attempt < 4; attempt++) {
      if (n_near_ <= kNear && descend(goal, true, found)) return found;
      (n_near_ > kNear ? too_long : too_short) = reach_;
      gather_near(too_long < INFINITY ? (too_short + too_long) / 2 : reach_ * 2);
    }
    descend(goal, false, found);
    return found;
  }

 private:
  static constexpr int kNear = 4096, kBins = 2048;
  const Logits& logits_;
  const Weights& weights_;
  float near_[kNear + kWide], near_weight_[kNear + kWide];
  int32_t n_near_;  // more than kNear: there were too many
  float reach_;
  uint32_t count_[kBins];
  double mass_[kBins];

  // Order-preserving integer of a logit, and back.
  static uint32_t key_of(float x) {
    const uint32_t b = bits_as<uint32_t>(x);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
  }
  static float logit_of(uint32_t key) { return bits_as<float>(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

  // The tokens less than `reach` below the largest logit.
  void gather_near(float reach) {
    reach_ = reach;
    n_near_ = 0;
    const float floor = weights_.max_logit - reach;
    for (int32_t i = 0; i < logits_.n && n_near_ <= kNear; i += kWide) {
      const Wide x = logits_.at(i);
      if (!(max_lanes(x) >= floor)) continue;
      float lanes[kWide];
      store(lanes, x);
      for (int r = 0; r < kWide && n_near_ <= kNear; r++) {
        near_[n_near_] = lanes[r];
        n_near_ += lanes[r] >= floor;
      }
    }
    if (n_near_ > kNear) return;
    for (int32_t i = 0; i < n_near_; i += kWide) store(near_weight_ + i, weights_.of(load<Wide>(near_ + i)));
  }

  void add_to_bins(const float* x, const float* weight, int n, float low, float high, int shift, uint32_t bin_mask) {
    for (int i = 0; i < n; i++) {
      if (!(x[i] >= low && x[i] <= high)) continue;
      const uint32_t bin = key_of(x[i]) >> shift & bin_mask;
      count_[bin]++;
      mass_[bin] += double(weight[i]);
    }
  }
  // Counts and masses by the bits above `shift`, of logits with low <= logit <= high.
  void fill_bins(bool is_near, float low, float high, int shift, uint32_t bin_mask) {
    memset(count_, 0, sizeof count_);
    memset(mass_, 0, sizeof mass_);
    if (is_near) return add_to_bins(near_, near_weight_, n_near_, low, high, shift, bin_mask);
    for (int32_t i = 0; i < logits_.n; i += kWide) {
      const Wide x = logits_.at(i);
      if (!(max_lanes(x) >= low)) continue;
      float lanes[kWide], weights[kWide];
      store(lanes, x);
      store(weights, weights_.of(x));
      add_to_bins(lanes, weights, kWide, low, high, shift, bin_mask);
    }
  }

  // Walks down from the top to the bin where the goal is met, then into that bin. False when the goal is not among the
  // near ones.
  bool descend(Goal goal, bool is_near, Found& found) {
    constexpr int kBits[3] = {11, 11, 10};
    float low = -FLT_MAX, high = FLT_MAX;
    uint32_t prefix = 0;
    int64_t count = 0;
    double mass = 0;
    for (int level = 0, shift = 32; level < 3; level++) {
      shift -= kBits[level];
      const uint32_t bin_mask = (1u << kBits[level]) - 1;
      fill_bins(is_near, low, high, shift, bin_mask);
      int32_t bin = int32_t(bin_mask), lowest = -1;
      for (; bin >= 0; bin--) {
        if (count_[bin] == 0) continue;
        lowest = bin;
        if (count + count_[bin] >= goal.count || mass + mass_[bin] >= goal.mass) break;
        count += count_[bin];
        mass += mass_[bin];
      }
      if (bin < 0) {
        if (level == 0 && is_near) return false;
        if (level == 0 || lowest < 0)
          return found = {Cut{}, mass}, true;  // the goal is more than there is: keep everything
        bin = lowest;                          // the bins of a bin add up to a little less than it did
        count -= count_[bin];
        mass -= mass_[bin];
      }
      prefix |= uint32_t(bin) << shift;
      low = logit_of(prefix);
      high = logit_of(prefix | ((1u << shift) - 1));
    }
    finish(goal, low, count_[prefix & 0x3ff], count, mass, found);
    return true;
  }
  // `n_equal` tokens have the logit at the cut, after `count` larger ones: keep as many as the goal needs, lowest ids
  // first.
  void finish(Goal goal, float logit, int64_t n_equal, int64_t count, double mass, Found& found) const {
    float lanes[kWide];
    store(lanes, weights_.of(splat<Wide>(logit)));
    const double weight = lanes[0];
    int64_t wanted = goal.count - count < n_equal ? goal.count - count : n_equal;
    if (weight * double(wanted) + mass >= goal.mass) {
      const double needed = (goal.mass - mass) / weight;
      const int64_t whole = needed < double(wanted) ? int64_t(needed) + (needed > double(int64_t(needed))) : wanted;
      wanted = whole < 1 ? 1 : whole < wanted ? whole : wanted;
    }
    found = {{logit, last_of(logit, wanted)}, mass + double(wanted) * weight};
  }
  // The id of the n-th token with this logit.
  int32_t last_of(float logit, int64_t n) const {
    for (int32_t i = 0; i < logits_.n; i += kWide) {
      const Wide x = logits_.at(i);
      if (!(max_lanes(x) >= logit)) continue;
      float lanes[kWide];
      store(lanes, x);
      for (int r = 0; r < kWide; r++)
        if (lanes[r] == logit && --n <= 0) return i + r;
    }
    return logits_.n;
  }
};

}  // namespace helios
