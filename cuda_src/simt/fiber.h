// Switching between stacks of one CPU thread: a hand-written switch on x86-64 (3 ns; the C library's makes two system
// calls), the C library's elsewhere. A fiber never moves to another CPU thread.
#pragma once

namespace helios::simt {

// Prepares a stack, given its upper end, on which `start` runs at the first switch to it. `start` never returns.
void* prepare_stack(char* top, void (*start)());
// Saves the caller's stack in *from and goes on with `to`.
void switch_stack(void** from, void* to);

}  // namespace helios::simt
