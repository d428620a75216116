// Large results in large pages, where the system has them to give.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace relnet {

// A fresh result is mapped page by page as it is written, which for 4 KiB pages takes as long as a linear kernel itself. Only a hint: the
// contents stay, and a system without large pages goes on as before.
inline void prefer_large_pages(void* memory, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    constexpr uintptr_t LARGE = uintptr_t(2) << 20;
    const uintptr_t begin = (uintptr_t(memory) + LARGE - 1) / LARGE * LARGE, end = (uintptr_t(memory) + bytes) / LARGE * LARGE;
    if (begin + LARGE <= end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

}  // namespace relnet
