// What the tables of all kernel libraries share: the argument lists of the vocabulary, and the export. A library's table.cpp
// defines how its kernels are launched and run (the rest of HeliosKernel), and includes this beside host/host.h: what a launch
// may touch is the host's answer everywhere, as the vocabulary has one.
#pragma once
#include <stddef.h>

#include "kernels.h"

#define HELIOS_EXPORT extern "C" __attribute__((visibility("default")))

// The kind and the alignment of a field.
#define HELIOS_KIND_OF_R HELIOS_KIND_READ, 4
#define HELIOS_KIND_OF_W HELIOS_KIND_WRITE, 4
#define HELIOS_KIND_OF_X HELIOS_KIND_READ_WRITE, 4
#define HELIOS_KIND_OF_R16 HELIOS_KIND_READ, 16
#define HELIOS_KIND_OF_W16 HELIOS_KIND_WRITE, 16
#define HELIOS_KIND_OF_X16 HELIOS_KIND_READ_WRITE, 16
#define HELIOS_KIND_OF_I HELIOS_KIND_I32, 0
#define HELIOS_KIND_OF_L HELIOS_KIND_I64, 0
#define HELIOS_KIND_OF_U HELIOS_KIND_U32, 0
#define HELIOS_KIND_OF_S HELIOS_KIND_F32, 0

#define HELIOS_TABLE_FIELD(kind, name) {#name, uint32_t(offsetof(Args, name)), HELIOS_KIND_OF_##kind},
#define HELIOS_TABLE_FIELDS(id, name, list)                 \
  namespace fields_##id {                                   \
    using Args = HeliosArgs_##id;                           \
    const HeliosField table[] = {list(HELIOS_TABLE_FIELD)}; \
  }
namespace helios {
HELIOS_KERNELS(HELIOS_TABLE_FIELDS)
}  // namespace helios

// The members of HeliosKernel up to `extent`.
#define HELIOS_TABLE_ARGUMENTS(id, name)                                                                \
  name, sizeof(HeliosArgs_##id), sizeof(fields_##id::table) / sizeof(HeliosField), fields_##id::table, \
      host_##id.extent
