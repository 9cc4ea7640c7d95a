// Counts what this program's own code takes from the heap: every operator new of the executable (they are replaced in
// heap_counter.cpp) and every AlignedBuffer. The executable does not export its operator new, so the QNN libraries,
// which are opened at run time, keep their own and are not counted.
#pragma once

#include <cstdint>

namespace snapgate {

std::uint64_t heap_allocation_count() noexcept;
void count_heap_allocation() noexcept;

} // namespace snapgate
