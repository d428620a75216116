// The relation op and its gradient over whole tensors, compiled once for each instruction set (RELNET_ISA).
//
//     y_j |V_j| = sum_{i in V_j} psi(s_ij x_ij)
//
// Masked sources are left out when rows are read, so that what a target sees, causal, masked and windowed, is always a range of the real sources.
// Work is cut by shapes and the number of threads asked for; sums over cuts are taken in their order: the same bits at every run.

#include "relation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "parallel.h"
#include "rows.h"
#include "tiles.h"

namespace relnet::RELNET_ISA {

namespace {

// Which real sources each target sees: ranks [low[j], high[j]) of a row's real sources, both growing with j.
struct Ranges {
    std::vector<int> low, high;
};

struct Row {                    // of the batch
    std::vector<int> real;      // positions of its real sources
    std::vector<Ranges> heads;  // one, or one a head where windows differ
};

std::vector<Row> visible(const RelnetRelation& a) {
    const int T = int(a.num_sources), S = int(a.num_targets);
    std::vector<Row> rows(a.key_mask ? a.batch : 1);
    for (size_t b = 0; b < rows.size(); b++) {
        Row& row = rows[b];
        std::vector<int> rank(T);  // real sources up to and with each position
        for (int t = 0; t < T; t++) {
            if (!a.key_mask || a.key_mask[b * T + t]) row.real.push_back(t);
            rank[t] = int(row.real.size());
        }
        row.heads.resize(a.windows ? a.heads : 1);
        for (size_t h = 0; h < row.heads.size(); h++) {
            Ranges& ranges = row.heads[h];
            const int64_t window = a.windows ? a.windows[h] : 0;
            for (int j = 0; j < S; j++) {
                const int high = a.causal ? rank[j + T - S] : int(row.real.size());
                ranges.high.push_back(high);
                ranges.low.push_back(window ? int(std::max<int64_t>(0, high - window)) : 0);
            }
        }
    }
    return rows;
}

struct Geometry {
    const RelnetRelation& a;
    std::vector<Row> rows = visible(a);
    const int T = int(a.num_sources), S = int(a.num_targets), d = int(a.d), width = padded(int(a.d));
    const bool centred = a.norm == 2, normed = a.norm != 0;

    const Row& row(int64_t b) const { return rows[a.key_mask ? b : 0]; }
    const Ranges& ranges(int64_t b, int64_t h) const { return row(b).heads[a.windows ? h : 0]; }
    size_t at(int64_t b, int64_t h, int64_t t, int length) const { return size_t(((b * length + t) * a.heads + h) * d); }
    size_t source_at(int64_t b, int64_t h, int64_t t) const { return size_t(b * a.source_stride + (t * a.heads + h) * d); }
    float* scales(int64_t b, int64_t h, int j) const { return a.scales ? a.scales + ((b * a.heads + h) * S + j) * size_t(T) : nullptr; }
    // Sources that a target can see at most: by shapes and windows, not by masks.
    int64_t most_seen() const {
        int64_t most = a.windows ? 0 : T;
        for (int64_t h = 0; a.windows && h < a.heads; h++) most = std::max<int64_t>(most, a.windows[h] ? std::min<int64_t>(a.windows[h], T) : T);
        return most;
    }
    // Cuts of each (batch row, head): one where there are enough of these to share out evenly, else some a thread.
    int cuts(int length) const {
        if (shared_out()) return 1;
        // About four items a thread: more would only make more target gradients to add up.
        const int64_t wanted = (4 * a.num_threads + pieces() - 1) / pieces();
        return int(std::max<int64_t>(1, std::min<int64_t>(wanted, length / BLOCK)));
    }
    int64_t pieces() const { return a.batch * a.heads; }
    // Rows and heads alone share the work out evenly.
    bool shared_out() const { return pieces() % a.num_threads == 0 || pieces() >= 8 * a.num_threads; }
};

// Target or source where piece c of `cuts` begins, in multiples of `step`. Causal pieces hold equally many pairs, not positions:
// those before a position grow as its square.
int border(int c, int cuts, int length, int step, bool causal, bool reversed) {
    if (c >= cuts) return length;
    const double share = double(c) / cuts;
    const double position = !causal ? share : reversed ? 1 - std::sqrt(1 - share) : std::sqrt(share);
    return std::min(length, int(std::lround(length * position / step)) * step);
}

// ---- forward ----

template <class T>
void write_mean(const Geometry& g, int64_t b, int64_t h, int j, const float* total, T* y) {
    const int count = g.ranges(b, h).high[j] - g.ranges(b, h).low[j];
    const float share = count ? 1.0f / float(count) : 0.0f;
    T* out = y + g.at(b, h, j, g.S);
    // An empty sum is 0 whatever the rest holds.
    for (int c = 0; c < g.d; c++) from_float(count ? total[c] * share : 0.0f, out[c]);
}

// Targets j to j + R - 1 meet their sources; p holds those from rank first_source on.
template <int R, class T, class Psi>
void forward_targets(const Geometry& g, const Psi& psi, int64_t b, int64_t h, int j, const float* p, int first_source, float* memory, T* y) {
    const Ranges& see = g.ranges(b, h);
    // What target r of the tile sees, as rows of p: [low(r), high(r)).
    const auto low = [&](int r) { return see.low[j + r] - first_source; };
    const auto high = [&](int r) { return see.high[j + r] - first_source; };
    float* q = memory;
    float* total = q + R * g.width;
    // Scales by row of p; row r of the tile begins at scales + r * stride.
    const size_t stride = g.T;
    float* scales = g.scales(b, h, j);
    scales = scales ? scales + first_source : total + R * g.width;
    for (int r = 0; r < R; r++)
        read_row(static_cast<const T*>(g.a.target) + g.at(b, h, j + r, g.S), q + r * g.width, g.d, g.centred);
    std::fill(total, total + R * g.width, 0.0f);
    if (g.normed)
        scale_tile<R>(q, p, scales, stride, g.d, low(0), high(R - 1), Psi::unit);
    else
        for (int r = 0; r < R; r++) std::fill(scales + r * stride + low(0), scales + r * stride + high(R - 1), Psi::unit);
    // What all R targets see goes through the tile, the few sources at the edges target by target.
    const int first = low(R - 1), last = std::max(first, high(0));
    forward_tile<R>(psi, q, p, scales, stride, total, g.width, first, last);
    for (int r = 0; r < R; r++) {
        const float *row = q + r * g.width, *s = scales + r * stride;
        forward_tile<1>(psi, row, p, s, stride, total + r * g.width, g.width, low(r), std::min(first, high(r)));
        if (R > 1) forward_tile<1>(psi, row, p, s, stride, total + r * g.width, g.width, std::max(last, low(r)), high(r));
        write_mean(g, b, h, j + r, total + r * g.width, y);
    }
}

// total = the sum over sources [low, high) for the only target, as in decoding: sources are read a few at a time and met while they are in
// a near cache, where reading all of them first takes most of the time.
template <class T, class Psi>
bool forward_one_target(const Geometry& g, const Psi& psi, int64_t b, int64_t h, int low, int high, float* total) {
    constexpr int ROWS = 32;
    static_assert(PARTIAL % ROWS == 0);
    const std::vector<int>& real = g.row(b).real;
    float* q = scratch(size_t(ROWS + 2) * g.width + ROWS + 64);
    if (!q) return false;
    float *partial = q + g.width, *p = partial + g.width, *scratch_scales = p + size_t(ROWS) * g.width;
    float* kept = g.scales(b, h, 0);
    read_row(static_cast<const T*>(g.a.target) + g.at(b, h, 0, g.S), q, g.d, g.centred);
    std::fill(total, total + g.width, 0.0f);
    for (int begin = low; begin < high; begin += PARTIAL) {
        const int end = std::min(high, begin + PARTIAL);
        std::fill(partial, partial + g.width, 0.0f);
        for (int first = begin; first < end; first += ROWS) {
            const int num = std::min(ROWS, end - first);
            float* scales = kept ? kept + first : scratch_scales;
            for (int i = 0; i < num; i++)
                read_row(static_cast<const T*>(g.a.source) + g.source_at(b, h, real[first + i]), p + size_t(i) * g.width, g.d, g.centred);
            if (g.normed)
                scale_tile<1>(q, p, scales, 0, g.d, 0, num, Psi::unit);
            else
                std::fill(scales, scales + num, Psi::unit);
            forward_tile<1>(psi, q, p, scales, 0, partial, g.width, 0, num);
        }
        for (int k = 0; k < g.width; k += W) add_to(total + k, load(partial + k));
    }
    return true;
}

// All there is of targets is one: where rows and heads are too few for the threads, its sources are shared out among them.
template <class T, class Psi>
int forward_single(const Geometry& g, T* y) {
    constexpr int FEWEST = 64;  // Sources that are worth a thread's while.
    const int64_t pieces = g.pieces(), threads = g.a.num_threads;
    const int cuts = g.shared_out() ? 1 : int(std::max<int64_t>(1, std::min<int64_t>(threads, g.most_seen() / FEWEST)));
    std::vector<float> totals(size_t(pieces * cuts) * g.width);
    std::atomic<int> failed{0};
    parallel(g.a.num_threads, pieces * cuts, [&](int64_t item) {
        const int64_t piece = item / cuts, b = piece / g.a.heads, h = piece % g.a.heads, c = item % cuts;
        const int low = g.ranges(b, h).low[0], count = g.ranges(b, h).high[0] - low;
        const int first = low + int(count * c / cuts), last = low + int(count * (c + 1) / cuts);
        if (!forward_one_target<T>(g, Psi{}, b, h, first, last, totals.data() + size_t(item) * g.width)) failed.store(1);
    });
    if (failed) return failed;
    for (int64_t piece = 0; piece < pieces; piece++) {
        float* total = totals.data() + size_t(piece * cuts) * g.width;
        for (int c = 1; c < cuts; c++)
            for (int k = 0; k < g.width; k += W) add_to(total + k, load(total + size_t(c) * g.width + k));
        write_mean(g, piece / g.a.heads, piece % g.a.heads, 0, total, y);
    }
    return 0;
}

template <class T, class Psi>
int forward(const RelnetRelation& a, void* y) {
    const Geometry g{a};
    if (g.S == 1) return forward_single<T, Psi>(g, static_cast<T*>(y));
    const int cuts = g.cuts(g.S);
    std::atomic<int> failed{0};
    constexpr int R = FORWARD_TARGETS;
    // The longest pieces first, so that none of them is left for the end.
    parallel(a.num_threads, a.batch * a.heads * cuts, [&](int64_t item) {
        const Psi psi{};
        const int64_t piece = item % (a.batch * a.heads), b = piece / a.heads, h = piece % a.heads;
        const int c = cuts - 1 - int(item / (a.batch * a.heads));
        int j = border(c, cuts, g.S, R, a.causal, false);
        const int end = border(c + 1, cuts, g.S, R, a.causal, false);
        if (j >= end) return;
        const Ranges& see = g.ranges(b, h);
        const int first = see.low[j], last = see.high[end - 1];
        float* p = scratch(size_t(last - first) * g.width + 2 * R * g.width + size_t(R) * g.T + 64);
        if (!p) return failed.store(1);
        const std::vector<int>& real = g.row(b).real;
        for (int i = first; i < last; i++)
            read_row(static_cast<const T*>(a.source) + g.source_at(b, h, real[i]), p + size_t(i - first) * g.width, g.d, g.centred);
        float* memory = p + size_t(last - first) * g.width;
        for (; j + R <= end; j += R) forward_targets<R>(g, psi, b, h, j, p, first, memory, static_cast<T*>(y));
        for (; j < end; j++) forward_targets<1>(g, psi, b, h, j, p, first, memory, static_cast<T*>(y));
    });
    return failed;
}

// ---- backward ----

template <int R, class Psi>
void backward_targets(
    const Geometry& g, const Psi& psi, int64_t b, int64_t h, int j, int first, int num, const float* q, const float* grad, float* grad_q,
    const float* p, float* grad_p) {
    const Ranges& see = g.ranges(b, h);
    // Sources that none of the targets sees cost nothing.
    num = std::min(num, see.high[j + R - 1] - first);
    alignas(64) float scales[R][BLOCK], valid[R][BLOCK];
    if (!g.a.scales && g.normed) scale_tile<R>(q, p, scales[0], BLOCK, g.d, 0, num, Psi::unit);
    bool edge = false;
    for (int r = 0; r < R; r++) {
        const int low = std::max(see.low[j + r] - first, 0), high = std::min(see.high[j + r] - first, num);
        const float* kept = g.scales(b, h, j + r);
        edge |= low > 0 || high < num;
        for (int i = 0; i < BLOCK; i++) {
            const bool seen = low <= i && i < high;
            const uint32_t bits = seen ? ~uint32_t(0) : 0;
            std::memcpy(&valid[r][i], &bits, sizeof bits);
            scales[r][i] = !seen ? 0.0f : !g.normed ? Psi::unit : kept ? kept[first + i] : scales[r][i];
        }
    }
    if (edge)
        backward_tile<R, true>(psi, q, grad, grad_q, p, grad_p, scales, valid, g.d, num, g.normed);
    else
        backward_tile<R, false>(psi, q, grad, grad_q, p, grad_p, scales, valid, g.d, num, g.normed);
}

template <class T, class Psi>
int backward(const RelnetRelation& a, const void* grad, void* grad_source, void* grad_target) {
    const Geometry g{a};
    const int64_t pieces = g.pieces();
    const size_t rows = size_t(g.S) * g.width, block = size_t(BLOCK) * g.width;  // floats
    // Each cut has target gradients of its own: many threads must not need many times the memory of the tensors.
    constexpr size_t MOST = size_t(1) << 26;  // floats
    const int cuts = int(std::min<size_t>(g.cuts(g.T), std::max<size_t>(1, MOST / std::max<size_t>(1, pieces * rows))));
    constexpr int TARGETS = 2 * PARTIAL;
    std::atomic<int> failed{0};
    // Target gradients of each piece, where several pieces add to the same targets; summed in their order at the end.
    std::unique_ptr<float, Free> shared;
    if (cuts > 1) {
        const size_t bytes = (size_t(pieces) * cuts * rows * sizeof(float) + 4095) / 4096 * 4096;
        shared.reset(static_cast<float*>(std::aligned_alloc(4096, bytes)));
        if (!shared) return 1;
    }
    const T *source = static_cast<const T*>(a.source), *target = static_cast<const T*>(a.target);
    T *out_source = static_cast<T*>(grad_source), *out_target = static_cast<T*>(grad_target);
    if (a.key_mask) std::fill(out_source, out_source + size_t(a.batch) * g.T * a.heads * g.d, T{});
    parallel(a.num_threads, pieces * cuts, [&](int64_t item) {
        const Psi psi{};
        const int64_t piece = item % pieces, b = piece / a.heads, h = piece % a.heads;
        const int c = int(item / pieces);
        const Ranges& see = g.ranges(b, h);
        const std::vector<int>& real = g.row(b).real;
        const int num_real = int(real.size());
        const int begin = std::min(num_real, border(c, cuts, g.T, BLOCK, a.causal, true));
        const int end = std::min(num_real, border(c + 1, cuts, g.T, BLOCK, a.causal, true));
        const size_t tile_rows = size_t(std::min(g.S, TARGETS)) * g.width, source_rows = size_t(end - begin) * g.width;
        float* q = scratch(2 * tile_rows + 2 * block + source_rows + (cuts > 1 ? 0 : rows) + 64);
        if (!q) return failed.store(1);
        float *scaled = q + tile_rows, *p = scaled + tile_rows, *partial = p + block, *grad_p = partial + block;
        float* grad_q = cuts > 1 ? shared.get() + size_t(piece * cuts + c) * rows : grad_p + source_rows;
        std::fill(grad_q, grad_q + rows, 0.0f);
        std::fill(grad_p, grad_p + source_rows, 0.0f);
        // A tile of targets meets all blocks of sources while it and its scales are in the second cache.
        for (int tile = 0; tile < g.S; tile += TARGETS) {
            const int tile_end = std::min(g.S, tile + TARGETS);
            for (int j = tile; j < tile_end; j++) {
                const int count = see.high[j] - see.low[j];
                const float share = count ? 1.0f / float(count) : 0.0f;
                read_row(target + g.at(b, h, j, g.S), q + size_t(j - tile) * g.width, g.d, g.centred);
                const T* in = static_cast<const T*>(grad) + g.at(b, h, j, g.S);
                float* row = scaled + size_t(j - tile) * g.width;
                for (int k = 0; k < g.width; k++) row[k] = k < g.d && count ? to_float(in[k]) * share : 0.0f;
            }
            int from = tile, to = tile;  // Targets of the tile that see a source of the block.
            for (int first = begin; first < end; first += BLOCK) {
                const int num = std::min(BLOCK, end - first);
                while (from < tile_end && see.high[from] <= first) from++;
                to = std::max(to, from);
                while (to < tile_end && see.low[to] < first + num) to++;
                if (from == to) continue;
                for (int i = 0; i < num; i++)
                    read_row(source + g.source_at(b, h, real[first + i]), p + size_t(i) * g.width, g.d, g.centred);
                const auto targets = [&](auto count, int j) {
                    const size_t at = size_t(j - tile) * g.width;
                    backward_targets<decltype(count)::value>(
                        g, psi, b, h, j, first, num, q + at, scaled + at, grad_q + size_t(j) * g.width, p, partial);
                };
                constexpr int R = BACKWARD_TARGETS;
                for (int j = from; j < to;) {
                    const int until = std::min(to, j + PARTIAL);
                    std::fill(partial, partial + block, 0.0f);
                    for (; j + R <= until; j += R) targets(std::integral_constant<int, R>{}, j);
                    for (; j < until; j++) targets(std::integral_constant<int, 1>{}, j);
                    float* total = grad_p + size_t(first - begin) * g.width;
                    for (size_t k = 0; k < size_t(num) * g.width; k += W) add_to(total + k, load(partial + k));
                }
            }
        }
        for (int i = begin; i < end; i++)
            write_gradient(
                grad_p + size_t(i - begin) * g.width, 1.0f / Psi::unit, out_source + g.at(b, h, real[i], g.T), g.d, g.centred);
        if (cuts > 1) return;
        for (int j = 0; j < g.S; j++)
            write_gradient(grad_q + size_t(j) * g.width, 1.0f / Psi::unit, out_target + g.at(b, h, j, g.S), g.d, g.centred);
    });
    if (failed || cuts == 1) return failed;
    constexpr int ROWS = 32;
    const int groups = (g.S + ROWS - 1) / ROWS;
    parallel(a.num_threads, pieces * groups, [&](int64_t item) {
        const int64_t piece = item / groups, b = piece / a.heads, h = piece % a.heads;
        const int first = int(item % groups) * ROWS;
        for (int j = first; j < std::min(g.S, first + ROWS); j++) {
            float* total = shared.get() + size_t(piece * cuts) * rows + size_t(j) * g.width;
            for (int c = 1; c < cuts; c++) {
                const float* other = total + size_t(c) * rows;
                for (int k = 0; k < g.width; k += W) add_to(total + k, load(other + k));
            }
            write_gradient(total, 1.0f / Psi::unit, out_target + g.at(b, h, j, g.S), g.d, g.centred);
        }
    });
    return failed;
}

// ---- one instance an activation and storage ----

// f of the activation that is asked for.
template <class F>
int with_activation(const RelnetRelation& a, F&& f) {
    const bool normed = a.norm != 0;
    // |z| <= sqrt(d) after a pair norm, a fifth more where a variance is so small that it is rounded; without a norm nothing bounds it.
    const bool bounded = normed && a.d < 4096;
    switch (a.activation) {
        case 0: return bounded ? f(Exp{}) : f(ExpAnywhere{});
        case 1: return f(Relu{});
        case 2: return bounded ? f(Elu{}) : f(EluAnywhere{});
        default: return normed ? f(Gelu{}) : f(GeluAnywhere{});
    }
}

template <class T>
int forward_of(const RelnetRelation& a, void* y) {
    return with_activation(a, [&](auto psi) { return forward<T, decltype(psi)>(a, y); });
}

template <class T>
int backward_of(const RelnetRelation& a, const void* grad, void* grad_source, void* grad_target) {
    return with_activation(a, [&](auto psi) { return backward<T, decltype(psi)>(a, grad, grad_source, grad_target); });
}

int forward_any(const RelnetRelation& a, void* y) { return a.bfloat16 ? forward_of<BFloat16>(a, y) : forward_of<float>(a, y); }
int backward_any(const RelnetRelation& a, const void* grad, void* grad_source, void* grad_target) {
    return a.bfloat16 ? backward_of<BFloat16>(a, grad, grad_source, grad_target) : backward_of<float>(a, grad, grad_source, grad_target);
}

}  // namespace

extern const Kernels kernels{forward_any, backward_any};

}  // namespace relnet::RELNET_ISA
