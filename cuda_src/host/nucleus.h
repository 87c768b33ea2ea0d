// Top-p alone: the fewest tokens, larger logits first and lower ids first on a tie, that have a share of the mass. As in
// selection.h that is a Cut; it is found in three passes over the row, whatever the distribution:
//   how much mass lies how far below the largest logit, and all of it;
//   mass by bins of equal width down to the distance that the share needs;
//   the tokens of the bin where the share is met, in order.
// Where it is met in no bin, or in one that has too many tokens, the radix selection takes over. The result depends on the
// row and the share alone.
#pragma once
#include <algorithm>

#include "selection.h"

namespace helios {

class Nucleus {
 public:
  Nucleus(const Logits& logits, const Weights& weights) : logits_(logits), weights_(weights) {}

  Cut find(double share) {
    const Profile profile(logits_, weights_);
    const double goal = share * profile.whole;
    const float reach = profile.reach_of(goal);
    Cut cut;
    if (reach < INFINITY && find_in_bins(goal, reach, cut)) return cut;
    return Selection(logits_, weights_).find({INT32_MAX, goal}).cut;
  }

 private:
  static constexpr int kBins = 2048, kMostInBin = 1024;
  const Logits& logits_;
  const Weights& weights_;
  double mass_[kBins + kWide];  // the last ones, one for each lane, are for what is out of reach

  // The mass of the row, and about how much of it is less than so many temperatures below the largest logit.
  struct Profile {
    static constexpr int kSteps = 8;
    static constexpr float kDistances[kSteps] = {1, 2, 3, 4, 6, 8, 10, 14};
    double whole;
    float temperature, within[kSteps];

    Profile(const Logits& logits, const Weights& weights) : temperature(1.f / weights.inverse_temperature) {
      Wide mass[kSteps], floor[kSteps];
      for (int j = 0; j < kSteps; j++) {
        mass[j] = splat<Wide>(0.f);
        floor[j] = splat<Wide>(weights.max_logit - kDistances[j] * temperature);
      }
      const auto weight_at = [&](int32_t i) __attribute__((always_inline)) {
        const Wide x = logits.at(i), weight = weights.of(x);
        HELIOS_UNROLL
        for (int j = 0; j < kSteps; j++) mass[j] = mass[j] + choose(greater(x, floor[j]), weight, splat<Wide>(0.f));
        return weight;
      };
      whole = ChunkSums(logits.n, weight_at).total;
      for (int j = 0; j < kSteps; j++) within[j] = sum_lanes(mass[j]);
    }
    // How far below the largest logit the tokens with that mass go, rather too far than not.
    float reach_of(double mass) const {
      for (int j = 0; j < kSteps; j++)
        if (double(within[j]) * 0.999 > mass) return kDistances[j] * temperature;
      return INFINITY;
    }
  };

  struct Bins {
    Wide top, scale, most;
    // A larger logit never has a larger bin.
    HELIOS_INLINE WideInt of(Wide x) const { return round_to_int(min((top - x) * scale, most)); }
  };

  bool find_in_bins(double goal, float reach, Cut& cut) {
    // One bin less, so that no token in reach is rounded up to kBins.
    const Bins bins{splat<Wide>(weights_.max_logit), splat<Wide>((kBins - 1) / reach), splat<Wide>(float(kBins))};
    const float floor = weights_.max_logit - reach;
    std::fill(mass_, mass_ + kBins + kWide, 0.);
    for (int32_t i = 0; i < logits_.n; i += kWide) {
      const Wide x = logits_.at(i);
      if (!(max_lanes(x) > floor)) continue;
      int32_t bin[kWide];
      float weight[kWide];
      store(bin, bins.of(x));
      store(weight, weights_.of(x));
      for (int r = 0; r < kWide; r++) mass_[bin[r] < kBins ? bin[r] : kBins + r] += double(weight[r]);
    }
    double mass = 0;
    for (int32_t bin = 0; bin < kBins; bin++) {
      if (mass + mass_[bin] >= goal) return find_in_bin(bins, bin, goal - mass, cut);
      mass += mass_[bin];
    }
    return false;
  }

  struct Token {
    float logit, weight;
    int32_t id;
  };
  // Where the tokens of a bin have `mass`; all of them when that is by rounding less.
  bool find_in_bin(const Bins& bins, int32_t bin, double mass, Cut& cut) const {
    Token tokens[kMostInBin + kWide];
    int n = 0;
    const WideInt below = splat<WideInt>(bin - 1), above = splat<WideInt>(bin + 1);
    const Wide one = splat<Wide>(1.f), none = splat<Wide>(0.f);
    for (int32_t i = 0; i < logits_.n && n <= kMostInBin; i += kWide) {
      const Wide x = logits_.at(i);
      const WideInt at = bins.of(x);
      if (max_lanes(choose(greater(at, below), choose(greater(above, at), one, none), none)) == 0.f) continue;
      int32_t bin_of[kWide];
      float logits[kWide], weights[kWide];
      store(bin_of, at);
      store(logits, x);
      store(weights, weights_.of(x));
      for (int r = 0; r < kWide; r++)
        if (bin_of[r] == bin) tokens[n++] = {logits[r], weights[r], i + r};
    }
    if (n > kMostInBin) return false;
    std::sort(tokens, tokens + n, [](const Token& a, const Token& b) {
      return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    });
    for (int i = 0; i < n; i++) {
      cut = {tokens[i].logit, tokens[i].id};
      mass -= double(tokens[i].weight);
      if (mass <= 0) break;
    }
    return n > 0;
  }
};

}  // namespace helios
