// Whether a sanitizer works here at all: builds, starts a thread, ends.
#include <thread>

int main() {
  std::thread([] {}).join();
  return 0;
}
