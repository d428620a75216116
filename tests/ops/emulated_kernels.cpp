// Calls the kernels for a test in another process, whose processor need not be this one's: stdin and stdout carry memory as it is.
//
// In:  kernel's number, size of its arguments, the arguments; how many blocks of memory, and of each its address over there, its size and
//      what it holds; how many more pointers, and each.
// Out: what the kernel returned, and the blocks as they are now.
// Both sides have 64-bit pointers and the same layout of structures.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "linear.h"
#include "norm.h"
#include "relation.h"

extern "C" {
int relnet_relation_forward(const void*, void*);
int relnet_relation_backward(const void*, const void*, void*, void*);
int relnet_linear_forward(const void*, void*, void*, void*);
int relnet_linear_backward(const void*, const void*, const void*, void*, void*, void*);
int relnet_norm_forward(const void*, void*);
int relnet_norm_backward(const void*, const void*, void*);
}

template <class T>
static bool read(T* to, size_t num) {
    return std::fread(to, sizeof(T), num, stdin) == num;
}

int main() {
    for (int64_t head[2]; read(head, 2);) {
        std::vector<uint64_t> arguments(head[1] / 8);
        int64_t num_blocks, num_more;
        read(arguments.data(), arguments.size());
        read(&num_blocks, 1);
        std::vector<std::vector<char>> blocks;
        std::map<uint64_t, uint64_t> here = {{0, 0}};
        for (int64_t k = 0; k < num_blocks; k++) {
            uint64_t place[2];
            read(place, 2);
            blocks.emplace_back(place[1]);
            read(blocks.back().data(), place[1]);
            here[place[0]] = reinterpret_cast<uint64_t>(blocks.back().data());
        }
        // A number that happens to be an address over there: addresses are far larger than any size.
        for (auto& word : arguments)
            if (const auto found = here.find(word); found != here.end()) word = found->second;
        read(&num_more, 1);
        uint64_t there[5];
        void* more[5];
        read(there, num_more);
        for (int64_t k = 0; k < num_more; k++) more[k] = reinterpret_cast<void*>(here.at(there[k]));
        const void* a = arguments.data();
        const int64_t failed = head[0] == 0   ? relnet_relation_forward(a, more[0])
                               : head[0] == 1 ? relnet_relation_backward(a, more[0], more[1], more[2])
                               : head[0] == 2 ? relnet_linear_forward(a, more[0], more[1], more[2])
                               : head[0] == 3 ? relnet_linear_backward(a, more[0], more[1], more[2], more[3], more[4])
                               : head[0] == 4 ? relnet_norm_forward(a, more[0])
                                              : relnet_norm_backward(a, more[0], more[1]);
        std::fwrite(&failed, 8, 1, stdout);
        for (const auto& block : blocks) std::fwrite(block.data(), 1, block.size(), stdout);
        std::fflush(stdout);
    }
}
