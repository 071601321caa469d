// What operator new does where there is no memory.
#include <cstdio>
#include <new>

// More than there are addresses. The compiler must not know.
volatile std::size_t too_much = std::size_t(1) << 50;

int main() {
  int calls = 0;
  static int *left = &calls;
  std::set_new_handler([] {
    std::puts("handler");
    if (++*left == 2) std::set_new_handler(nullptr);
  });
  try {
    (void)::operator new(too_much);
    return 1;
  } catch (const std::bad_alloc &) {
    std::puts("bad_alloc");
  }
  if (::operator new(too_much, std::nothrow)) return 2;
  std::puts("null");
  std::set_new_handler([] {
    std::puts("handler");
    throw std::bad_alloc();
  });
  if (::operator new[](too_much, std::align_val_t(64), std::nothrow)) return 3;
  std::puts("null");
}
