#include "fiber.h"

#include <stdint.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace helios::simt {

#if defined(__x86_64__)

extern "C" __attribute__((visibility("hidden"))) void helios_simt_switch(void** from, void* to);

// The registers that a call preserves go onto the old stack and come from the new one. `jmp` and not `ret`: the return
// predictor knows nothing of this stack.
asm(R"(
.text
.globl helios_simt_switch
.hidden helios_simt_switch
.type helios_simt_switch,@function
helios_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size helios_simt_switch,.-helios_simt_switch
)");

void* prepare_stack(char* top, void (*start)()) {
  constexpr int kPreserved = 6;
  void** frame = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
  *--frame = nullptr;  // where a return address would be: the stack is aligned as after a call
  *--frame = reinterpret_cast<void*>(start);
  for (int i = 0; i < kPreserved; i++) *--frame = nullptr;
  return frame;
}
void switch_stack(void** from, void* to) { helios_simt_switch(from, to); }

#else

// The context lies at the top of its own stack; of the thread's own stack, in the frame of the switch.
void* prepare_stack(char* top, void (*start)()) {
  constexpr uintptr_t kStackBytes = 48 << 10;  // below the context; block.cpp gives each fiber more
  auto* context =
      reinterpret_cast<ucontext_t*>((reinterpret_cast<uintptr_t>(top) - sizeof(ucontext_t)) & ~uintptr_t{15});
  getcontext(context);
  context->uc_stack.ss_sp = reinterpret_cast<char*>(context) - kStackBytes;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  makecontext(context, start, 0);
  return context;
}
void switch_stack(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

#endif

}  // namespace helios::simt
