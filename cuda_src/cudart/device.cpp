// Device count, attributes, the instruction set that kernels may use, and the launch of one kernel on a device's pool.
// HELIOS_HOST_DEVICES=n shows n devices that share the machine. Devices live until the process ends, so that threads
// which outlive main() find them; fork() is not supported once a stream exists, as with CUDA.
#include "device.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <system_error>

#include "error.h"
#include "limits.h"
#include "stream.h"

namespace helios {

namespace {

constexpr int max_devices = 16;
constexpr int runtime_version = 13000;

thread_local int current_index = 0;

std::array<HostDevice, max_devices>& devices() {
  static auto* all = new std::array<HostDevice, max_devices>;
  return *all;
}

// A launch whose blocks are a pool's tasks.
struct EmulatedLaunch {
  const HeliosKernel& kernel;
  const HeliosGeometry& geometry;
  const void* args;
  std::atomic<bool> has_failed{false};
};

void run_emulated_block(const void* pointer, int32_t block, int32_t) {
  auto* launch = static_cast<EmulatedLaunch*>(const_cast<void*>(pointer));
  if (launch->kernel.run_block(launch->args, &launch->geometry, block) != 0) launch->has_failed = true;
}

#if defined(__x86_64__)
// Whether the processor multiplies tiles of bytes and of bf16 numbers, and the kernel lets this process: it grants the 8 KiB of state
// that each thread then carries to those that ask.
bool may_use_matrix_unit() {
  constexpr unsigned amx = 1u << 22 | 1u << 24 | 1u << 25;  // bf16, tiles, int8
  constexpr unsigned avx512_bf16 = 1u << 5;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (edx & amx) != amx) return false;
  if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) || !(eax & avx512_bf16)) return false;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

int instruction_set_level() {
#if defined(__x86_64__)
  const bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool has_v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  if (!has_v3) return 1;
  return !has_v4 ? 3 : may_use_matrix_unit() ? 5 : 4;
#elif defined(__aarch64__)
  return 8;
#else
#error "the host library knows x86-64 and aarch64"
#endif
}

cudaError_t give_version(int* version) {
  if (!version) return report(cudaErrorInvalidValue);
  *version = runtime_version;
  return report(cudaSuccess);
}

}  // namespace

HostDevice::HostDevice() : n_threads_(usable_cpus()) {}

int HostDevice::n_threads() { return n_threads_; }

void HostDevice::set_n_threads(int n_threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (n_threads == n_threads_) return;
  pool_.reset();
  n_threads_ = n_threads;
}

void HostDevice::stream_opened() {
  std::lock_guard<std::mutex> lock(mutex_);
  n_streams_++;
}

void HostDevice::stream_closed() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (--n_streams_ == 0) pool_.reset();
}

cudaError_t HostDevice::run_kernel(const HeliosKernel& kernel, const HeliosGeometry& geometry, const void* args) {
  if (kernel.run_block) {
    EmulatedLaunch launch = {kernel, geometry, args};
    const cudaError_t refusal = run_tasks(run_emulated_block, &launch, int32_t(geometry.n_blocks));
    return launch.has_failed ? cudaErrorLaunchFailure : refusal;
  }
  const int32_t n_tasks = kernel.n_tasks(args, n_threads_);
  return n_tasks < 0 ? cudaErrorLaunchFailure : run_tasks(kernel.run, args, n_tasks);
}

cudaError_t HostDevice::run_tasks(Pool::Run run, const void* args, int32_t n_tasks) {
  if (n_tasks <= 1) {
    if (n_tasks == 1) run(args, 0, 1);
    return cudaSuccess;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  try {
    if (!pool_) pool_ = std::make_unique<Pool>(n_threads_);
  } catch (const std::system_error&) {
    return cudaErrorOperatingSystem;
  }
  pool_->run_phase(run, args, n_tasks);
  return cudaSuccess;
}

int n_devices() {
  static const int count = [] {
    const char* text = getenv("HELIOS_HOST_DEVICES");
    const int asked = text ? atoi(text) : 1;
    return asked < 1 ? 1 : asked > max_devices ? max_devices : asked;
  }();
  return count;
}

int current_device_index() { return current_index; }

HostDevice& current_device() { return devices()[current_index]; }

}  // namespace helios

using namespace helios;

cudaError_t cudaRuntimeGetVersion(int* version) { return give_version(version); }

cudaError_t cudaDriverGetVersion(int* version) { return give_version(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return report(cudaErrorInvalidValue);
  *count = n_devices();
  return report(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= n_devices()) return report(cudaErrorInvalidDevice);
  current_index = device;
  return report(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  if (!device) return report(cudaErrorInvalidValue);
  *device = current_index;
  return report(cudaSuccess);
}

// How a host thread waits: this library always blocks (cudaDeviceScheduleBlockingSync), whatever is asked for.
cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  return report(flags > 0xff ? cudaErrorInvalidValue : cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= n_devices()) return report(cudaErrorInvalidDevice);
  if (!value) return report(cudaErrorInvalidValue);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 * 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 * 1024;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = devices()[device].n_threads();
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = instruction_set_level();
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    default:
      return report(cudaErrorInvalidValue);
  }
  return report(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
  synchronize_streams(&current_device());
  return report(cudaSuccess);
}

cudaError_t heliosHostSetThreads(int n_threads) {
  if (n_threads < 0 || n_threads > max_threads) return report(cudaErrorInvalidValue);
  current_device().set_n_threads(n_threads == 0 ? usable_cpus() : n_threads);
  return report(cudaSuccess);
}
