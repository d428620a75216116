// Work items shared by threads. Which thread does an item never changes its result, so neither do those that come and their speed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace relnet {

// GOMP_parallel of the OpenMP library that PyTorch has loaded, or null: a second pool of threads would fight with PyTorch's for the cores.
using TeamRunner = void (*)(void (*)(void*), void*, unsigned, unsigned);
extern TeamRunner team_runner;
// True in a forked child, where the pool's threads do not exist.
extern std::atomic<bool> forked;

template <class Work>
void parallel(int num_threads, int64_t num_items, Work&& work) {
    struct Job {
        std::atomic<int64_t> next;
        int64_t num_items;
        Work* work;
        static void run(void* data) {
            Job& job = *static_cast<Job*>(data);
            for (int64_t item; (item = job.next.fetch_add(1)) < job.num_items;) (*job.work)(item);
        }
    } job{{0}, num_items, &work};
    const unsigned threads = unsigned(std::min<int64_t>(num_threads, num_items));
    if (threads <= 1 || forked.load()) return Job::run(&job);
    if (team_runner) return team_runner(Job::run, &job, threads, 0);
    std::vector<std::thread> helpers;
    helpers.reserve(threads);
    try {
        for (unsigned k = 1; k < threads; k++) helpers.emplace_back(Job::run, &job);
    } catch (...) {
        // No more threads to be had: those that there are do all items.
    }
    Job::run(&job);
    for (auto& helper : helpers) helper.join();
}

// Aligned memory that a thread keeps between calls; null where there is none.
struct Free {
    void operator()(float* memory) const { std::free(memory); }
};
inline float* scratch(size_t num_floats) {
    thread_local std::unique_ptr<float, Free> memory;
    thread_local size_t held = 0;
    if (held < num_floats) {
        const size_t bytes = (num_floats * sizeof(float) + 4095) / 4096 * 4096;
        memory.reset();
        memory.reset(static_cast<float*>(std::aligned_alloc(4096, bytes)));
        held = memory ? num_floats : 0;
    }
    return memory.get();
}

}  // namespace relnet
