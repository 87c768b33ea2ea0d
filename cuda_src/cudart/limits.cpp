// Reads affinity, /proc and the control groups.
// It keeps no state: each call reads the files again, which takes some tens of microseconds. An unreadable or absent
// file means no limit from that side.
#include "limits.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace helios {

namespace {

std::string read_text(const std::string& path) {
  FILE* file = fopen(path.c_str(), "re");
  if (!file) return {};
  std::string text;
  char block[4096];
  size_t n_read;
  while ((n_read = fread(block, 1, sizeof block, file)) > 0) text.append(block, n_read);
  fclose(file);
  return text;
}

// The number after `key` in a file of "key: value" lines; `fallback` when absent.
uint64_t value_after(const std::string& text, const char* key, uint64_t fallback) {
  const size_t at = text.find(key);
  unsigned long long value;
  if (at == std::string::npos || sscanf(text.c_str() + at + strlen(key), " %llu", &value) != 1) return fallback;
  return value;
}

uint64_t number_or(const std::string& text, uint64_t fallback) {
  unsigned long long value;
  return sscanf(text.c_str(), "%llu", &value) == 1 ? value : fallback;
}

// The folders of the control groups that hold this process in `controller`, innermost first.
std::vector<std::string> group_folders(const char* controller) {
  std::vector<std::string> folders;
  const std::string groups = read_text("/proc/self/cgroup");
  size_t start = 0;
  while (start < groups.size()) {
    const size_t end = std::min(groups.find('\n', start), groups.size());
    const std::string line = groups.substr(start, end - start);
    start = end + 1;
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_unified = names == ",,";
    if (!is_unified && names.find("," + std::string(controller) + ",") == std::string::npos) continue;
    const std::string root = is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + std::string(controller);
    std::string path = line.substr(second + 1);
    while (path.size() > 1) {
      folders.push_back(root + path);
      path.resize(path.rfind('/'));
    }
    folders.push_back(root);
  }
  return folders;
}

uint64_t cpu_quota() {
  double quota_cpus = 1 << 20;
  for (const std::string& folder : group_folders("cpu")) {
    double quota_us = 0, period_us = 0;
    const std::string unified = read_text(folder + "/cpu.max");
    if (sscanf(unified.c_str(), "%lf %lf", &quota_us, &period_us) != 2) {
      const std::string quota = read_text(folder + "/cpu.cfs_quota_us"),
                        period = read_text(folder + "/cpu.cfs_period_us");
      if (sscanf(quota.c_str(), "%lf", &quota_us) != 1 || sscanf(period.c_str(), "%lf", &period_us) != 1) continue;
    }
    if (quota_us > 0 && period_us > 0) quota_cpus = std::min(quota_cpus, quota_us / period_us);
  }
  return std::max<uint64_t>(1, static_cast<uint64_t>(quota_cpus + 0.5));
}

}  // namespace

int usable_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const long n_online = sysconf(_SC_NPROCESSORS_ONLN);
  const int n_allowed =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : static_cast<int>(n_online);
  return static_cast<int>(std::max<uint64_t>(1, std::min<uint64_t>(n_allowed, cpu_quota())));
}

MemoryRoom memory_room() {
  const std::string meminfo = read_text("/proc/meminfo");
  const uint64_t installed_kib = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * (sysconf(_SC_PAGESIZE) / 1024);
  const uint64_t total_kib = value_after(meminfo, "MemTotal:", installed_kib);
  MemoryRoom room{value_after(meminfo, "MemAvailable:", total_kib) * 1024, total_kib * 1024};
  for (const std::string& folder : group_folders("memory")) {
    const std::string statistics = read_text(folder + "/memory.stat");
    uint64_t limit = number_or(read_text(folder + "/memory.max"), UINT64_MAX);
    uint64_t used = number_or(read_text(folder + "/memory.current"), 0);
    if (limit == UINT64_MAX) {
      limit = number_or(read_text(folder + "/memory.limit_in_bytes"), UINT64_MAX);
      used = number_or(read_text(folder + "/memory.usage_in_bytes"), 0);
    }
    if (limit >= room.total_nbytes) continue;
    const uint64_t reclaimable = std::min(used, value_after(statistics, "\ninactive_file ", 0));
    used -= reclaimable;
    room.total_nbytes = limit;
    room.available_nbytes = std::min(room.available_nbytes, limit > used ? limit - used : 0);
  }
  return room;
}

uint64_t resident_anonymous_nbytes() { return value_after(read_text("/proc/self/status"), "RssAnon:", 0) * 1024; }

}  // namespace helios
