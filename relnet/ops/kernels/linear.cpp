// Linear relations and their gradient over whole tensors, compiled once for each instruction set (RELNET_ISA).
//
//     log y_j = q_j + m_j + log(S_j / |V_j|)        y_j = exp(q_j + m_j) S_j / |V_j|
//     m_j = max(m_{j-1}, p_j)                       S_j = exp(m_{j-1} - m_j) S_{j-1} + exp(p_j - m_j)
//
// One of the two exponentials is always exp(0), so a source costs one: exp(-|p_j - m_{j-1}|), a decay where p_j is the new maximum and a term
// where it is not. With w_j = dL/dlog y_j / S_j (the mean: dL/dy_j exp(q_j + m_j) / |V_j|) the gradient is the same recurrence from the end:
//
//     U_j = w_j + exp(m_j - m_{j+1}) U_{j+1}        dL/dp_j = exp(p_j - m_j) U_j
//
// Channels know nothing of each other. They are what threads share, so no bit depends on how many these are, and a position is computed from
// those before it in their order, so no later token can change it. The backward pass goes from the last tile of positions to the first,
// and recomputes m and S inside each from what the forward pass kept at its beginning.

#include "linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "activations.h"
#include "logarithm.h"
#include "pages.h"
#include "parallel.h"
#include "rows.h"

namespace relnet::RELNET_ISA {

namespace {

constexpr int TILE = LINEAR_TILE;
constexpr int VECTORS = 2;  // A group of channels: enough independent work to hide the latency of the recurrence.

// sum_i exp(p_i) = exp(maximum) (sum + rest). rest is what additions lost: a million terms would cost half of the digits.
struct Sums {
    V maximum, sum, rest;
    RELNET_INLINE V total() const { return add(sum, rest); }
};

struct Step {
    V decay, term;
};

// Take one more source in. NaN stays in sum; an infinite maximum makes no NaN.
RELNET_INLINE Step advance(const PowerOfTwo& power, V p, Sums& s) {
    const V one = set1(1.0f), d = difference(p, s.maximum);
    const V e = negative_exp(power, bit_or(d, set1(-0.0f)));
    const Step step{positive_or(d, e, one), positive_or(d, one, e)};
    const V sum = fma(s.sum, step.decay, step.term);
    s.rest = fma(s.rest, step.decay, sub(step.term, fnma(s.sum, step.decay, sum)));
    s.sum = sum;
    s.maximum = positive_or(d, p, s.maximum);
    return step;
}

// NV vectors of channels, or the `num` last ones of a row.
template <int NV, bool PART>
struct Group {
    static constexpr int SIZE = NV;
    int num;
    template <class T>
    RELNET_INLINE V read(const T* row, int v) const {
        return PART ? load_part(row, num) : load_as(row + v * W);
    }
    template <class T>
    RELNET_INLINE void write(T* row, int v, V value) const {
        PART ? store_part(row, value, num) : store_as(row + v * W, value);
    }
};

// Bring in what the next tile reads of this channel group: tiles are taken backwards too, and cross pages at every row or two, which the
// processor does not foresee.
template <class G, class T>
RELNET_INLINE void prefetch(G, const T* row) {
    for (size_t at = 0; at < size_t(G::SIZE) * W * sizeof(T); at += 64) __builtin_prefetch(reinterpret_cast<const char*>(row) + at);
}

template <class F>
void each_group(int first, int last, F&& f) {
    int h = first;
    for (; h + VECTORS * W <= last; h += VECTORS * W) f(Group<VECTORS, false>{0}, h);
    for (; h + W <= last; h += W) f(Group<1, false>{0}, h);
    if (h < last) f(Group<1, true>{last - h}, h);
}

// Some positions that follow each other: which are real sources, and 1 / |V| at each, 0 where V is empty.
struct Tile {
    int num, first_target;
    bool real[TILE];
    float share[TILE];
};

float share_of(int64_t count) { return count ? float(1.0 / double(count)) : 0.0f; }

// A batch row's rows in memory, of channel h on.
template <class T>
struct Rows {
    T* at;
    int64_t stride;
    T* operator()(int64_t t, int h) const { return at + t * stride + h; }
};

template <class T>
struct Problem {
    const RelnetLinear& a;
    const int64_t T_ = a.num_sources, S = a.num_targets, offset = T_ - S, D = a.width;
    const int64_t tiles = (T_ + TILE - 1) / TILE;

    Rows<const T> source(int64_t b) const { return {static_cast<const T*>(a.source) + b * a.source_strides[0], a.source_strides[1]}; }
    Rows<const T> target(int64_t b) const { return {static_cast<const T*>(a.target) + b * a.target_strides[0], a.target_strides[1]}; }
    Rows<const T> grad(const void* g, int64_t b) const { return {static_cast<const T*>(g) + b * a.grad_strides[0], a.grad_strides[1]}; }
    void write_to(void* x, int64_t length) const { prefer_large_pages(x, size_t(a.batch) * length * D * sizeof(T)); }
    Rows<T> result(void* x, int64_t b, int64_t length) const { return {static_cast<T*>(x) + b * length * D, D}; }
    float* kept(int64_t b, int64_t tile, int which) const { return a.kept + ((b * (a.causal ? tiles : 1) + tile) * 2 + which) * D; }
    int64_t past_count(int64_t b) const { return a.past ? a.past_count[b] : 0; }
    int64_t real_in(int64_t b, int64_t first, int64_t last) const {
        if (!a.key_mask) return last - first;
        return std::count_if(a.key_mask + b * T_ + first, a.key_mask + b * T_ + last, [](uint8_t x) { return x != 0; });
    }
    // The sources of a tile, and the targets that sit at them; `count` sources came before.
    Tile sources(int64_t b, int64_t first, int64_t count) const {
        Tile tile;
        tile.num = int(std::min<int64_t>(TILE, T_ - first));
        tile.first_target = a.causal ? int(std::clamp<int64_t>(offset - first, 0, tile.num)) : tile.num;
        for (int r = 0; r < tile.num; r++) {
            tile.real[r] = !a.key_mask || a.key_mask[b * T_ + first + r];
            tile.share[r] = share_of(count += tile.real[r]);
        }
        return tile;
    }
    // Targets that see all sources.
    Tile targets(int64_t first, int64_t count) const {
        Tile tile{int(std::min<int64_t>(TILE, S - first)), 0, {}, {}};
        std::fill(tile.share, tile.share + TILE, share_of(count));
        return tile;
    }
    // Runs work(b, first channel, last channel) for all pieces of the batch: whole vectors of channels, cut where there are too few rows.
    template <class Work>
    int run(Work&& work) const {
        const int64_t vectors = (D + W - 1) / W, threads = std::max<int64_t>(1, a.num_threads);
        const int64_t cuts = a.batch >= 8 * threads ? 1 : std::min(vectors, threads / std::gcd(a.batch, threads));
        std::atomic<int> failed{0};
        parallel(a.num_threads, a.batch * cuts, [&](int64_t item) {
            const int64_t c = item % cuts, first = vectors * c / cuts * W, last = std::min(D, vectors * (c + 1) / cuts * W);
            if (work(item / cuts, int(first), int(last))) failed.store(1);
        });
        return failed;
    }
};

// ---- forward ----

// The running sums of a piece of channels, in memory between tiles.
struct State {
    float *maximum, *sum, *rest;
    State(float* memory, int width) : maximum(memory), sum(memory + width), rest(memory + 2 * width) {}
    RELNET_INLINE Sums at(int h) const { return {load(maximum + h), load(sum + h), load(rest + h)}; }
    RELNET_INLINE void set(int h, const Sums& s) { store(maximum + h, s.maximum), store(sum + h, s.sum), store(rest + h, s.rest); }
};

template <bool MEAN, class G, class T>
void forward_tile(
    const PowerOfTwo& power, G g, const Tile& tile, const T* p, int64_t p_stride, const T* q, int64_t q_stride, T* y, int64_t y_stride,
    State state, int at) {
    Sums sums[G::SIZE];
    for (int v = 0; v < G::SIZE; v++) sums[v] = state.at(at + v * W);
    for (int r = 0; r < tile.num; r++) {
        prefetch(g, p + (r + TILE) * p_stride);
        prefetch(g, q + (r + TILE) * q_stride);
        if (tile.real[r])
            RELNET_UNROLL for (int v = 0; v < G::SIZE; v++) advance(power, g.read(p + r * p_stride, v), sums[v]);
        if (r < tile.first_target) continue;
        const T* q_row = q + (r - tile.first_target) * q_stride;
        T* y_row = y + (r - tile.first_target) * y_stride;
        RELNET_UNROLL for (int v = 0; v < G::SIZE; v++) {
            V out = set1(MEAN ? 0.0f : -INFINITY);
            if (tile.share[r] != 0.0f) {
                const V mean = mul(sums[v].total(), set1(tile.share[r])), target = g.read(q_row, v);
                if (MEAN)
                    out = mul(any_power(power, mul(add(target, sums[v].maximum), set1(LOG2_E))), mean);
                else
                    out = add(target, add(sums[v].maximum, logarithm(mean)));
            }
            g.write(y_row, v, out);
        }
    }
    for (int v = 0; v < G::SIZE; v++) state.set(at + v * W, sums[v]);
}

template <class T, bool MEAN>
int forward(const RelnetLinear& a, void* y, float* log_sum, int64_t* count_out) {
    const Problem<T> on{a};
    on.write_to(y, on.S);
    if (a.kept) prefer_large_pages(a.kept, size_t(a.batch) * (a.causal ? on.tiles : 1) * 2 * on.D * sizeof(float));
    return on.run([&](int64_t b, int first, int last) {
        const PowerOfTwo power;
        const int width = padded(last - first);
        float* memory = scratch(3 * width);
        if (!memory) return 1;
        State state(memory, width);
        int64_t count = on.past_count(b);
        for (int h = 0; h < width; h++) {
            const bool past = count && first + h < last;
            state.maximum[h] = past ? a.past[b * on.D + first + h] : -INFINITY;
            // NaN lives in the sum.
            state.sum[h] = !past ? 0.0f : state.maximum[h] != state.maximum[h] ? NAN : 1.0f;
            state.rest[h] = 0.0f;
        }
        const auto keep = [&](int64_t tile) {
            if (!a.kept) return;
            each_group(first, last, [&](auto g, int h) {
                for (int v = 0; v < g.SIZE; v++) {
                    const Sums sums = state.at(h - first + v * W);
                    g.write(on.kept(b, tile, 0) + h, v, sums.maximum);
                    g.write(on.kept(b, tile, 1) + h, v, sums.total());
                }
            });
        };
        const Rows<const T> p = on.source(b), q = on.target(b);
        const Rows<T> out = on.result(y, b, on.S);
        const auto advance_tile = [&](const Tile& tile, int64_t t, int64_t j) {
            each_group(first, last, [&](auto g, int h) {
                forward_tile<MEAN>(power, g, tile, p(t, h), p.stride, q(j, h), q.stride, out(j, h), out.stride, state, h - first);
            });
        };
        for (int64_t t = 0; t < on.T_; t += TILE) {
            if (a.causal) keep(t / TILE);
            const Tile tile = on.sources(b, t, count);
            advance_tile(tile, t, std::max<int64_t>(0, t - on.offset));
            count += on.real_in(b, t, t + tile.num);
        }
        if (!a.causal) {
            keep(0);
            for (int64_t j = 0; j < on.S; j += TILE) advance_tile(on.targets(j, count), 0, j);
        }
        if (log_sum) {
            each_group(first, last, [&](auto g, int h) {
                for (int v = 0; v < g.SIZE; v++) {
                    const Sums sums = state.at(h - first + v * W);
                    g.write(log_sum + b * on.D + h, v, count ? add(sums.maximum, logarithm(sums.total())) : set1(-INFINITY));
                }
            });
            if (first == 0) count_out[b] = count;
        }
        return 0;
    });
}

// ---- backward ----

// dL/dlog y / S, or dL/dy exp(q + m) / |V| and from it the gradient of q.
template <bool MEAN, class G, class T>
RELNET_INLINE V weight(const PowerOfTwo& power, G g, int v, const Sums& sums, float share, const T* grad, const T* q, T* grad_q) {
    V w = zero();
    if (share != 0.0f) {
        w = g.read(grad, v);
        if (MEAN)
            w = mul(mul(w, set1(share)), any_power(power, mul(add(g.read(q, v), sums.maximum), set1(LOG2_E))));
        else
            w = mul(w, inverse(sums.total()));
    }
    if (MEAN) g.write(grad_q, v, share != 0.0f ? mul(w, sums.total()) : zero());
    return w;
}

// Rows of a tile's first target on, for those that have one.
template <class T>
struct TargetRows {
    const T *grad, *q;
    T* grad_q;
    int64_t grad_stride, q_stride, grad_q_stride;
};

template <bool MEAN, class G, class T>
void backward_tile(
    const PowerOfTwo& power, G g, const Tile& tile, const T* p, int64_t p_stride, const TargetRows<T>& rows, T* grad_p, int64_t grad_p_stride,
    const float* maximum, const float* sum, const float* grad_end, float* u) {
    constexpr int NV = G::SIZE;
    alignas(64) float decay[TILE * NV * W], term[TILE * NV * W], weights[TILE * NV * W];
    Sums sums[NV];
    V U[NV];
    for (int v = 0; v < NV; v++) sums[v] = {g.read(maximum, v), g.read(sum, v), zero()}, U[v] = load(u + v * W);
    for (int r = 0; r < tile.num; r++) {
        const bool has_target = rows.grad && r >= tile.first_target;
        const int64_t j = r - tile.first_target;
        prefetch(g, p + (r - TILE) * p_stride);
        if (has_target) prefetch(g, rows.grad + (j - TILE) * rows.grad_stride);
        RELNET_UNROLL for (int v = 0; v < NV; v++) {
            const int at = (r * NV + v) * W;
            if (tile.real[r]) {
                const Step step = advance(power, g.read(p + r * p_stride, v), sums[v]);
                store(decay + at, step.decay), store(term + at, step.term);
            }
            V w = zero();
            if (has_target)
                w = weight<MEAN>(
                    power, g, v, sums[v], tile.share[r], rows.grad + j * rows.grad_stride, MEAN ? rows.q + j * rows.q_stride : nullptr,
                    MEAN ? rows.grad_q + j * rows.grad_q_stride : nullptr);
            store(weights + at, w);
        }
    }
    if (grad_end && tile.share[tile.num - 1] != 0.0f)
        for (int v = 0; v < NV; v++) U[v] = mul(g.read(grad_end, v), inverse(sums[v].total()));
    for (int r = tile.num - 1; r >= 0; r--)
        RELNET_UNROLL for (int v = 0; v < NV; v++) {
            const int at = (r * NV + v) * W;
            U[v] = add(U[v], load(weights + at));
            g.write(grad_p + r * grad_p_stride, v, tile.real[r] ? mul(load(term + at), U[v]) : zero());
            if (tile.real[r]) U[v] = mul(load(decay + at), U[v]);
        }
    for (int v = 0; v < NV; v++) store(u + v * W, U[v]);
}

template <class T, bool MEAN>
int backward_causal(
    const RelnetLinear& a, const void* grad, const float* grad_log_sum, void* grad_source, void* grad_target, float* grad_past) {
    const Problem<T> on{a};
    return on.run([&](int64_t b, int first, int last) {
        const PowerOfTwo power;
        const int width = padded(last - first);
        float* u = scratch(width);
        if (!u) return 1;
        std::fill(u, u + width, 0.0f);
        const Rows<const T> p = on.source(b), g_rows = grad ? on.grad(grad, b) : Rows<const T>{}, q = on.target(b);
        const Rows<T> out = on.result(grad_source, b, on.T_), out_q = MEAN ? on.result(grad_target, b, on.S) : Rows<T>{};
        int64_t count = on.past_count(b) + on.real_in(b, 0, on.T_);
        for (int64_t t = (on.tiles - 1) * TILE; t >= 0; t -= TILE) {
            const int64_t j = std::max<int64_t>(0, t - on.offset);
            count -= on.real_in(b, t, std::min(on.T_, t + TILE));
            const Tile tile = on.sources(b, t, count);
            each_group(first, last, [&](auto g, int h) {
                const TargetRows<T> rows{
                    grad ? g_rows(j, h) : nullptr, q(j, h), MEAN ? out_q(j, h) : nullptr, g_rows.stride, q.stride, out_q.stride};
                const float* end = grad_log_sum && t + TILE >= on.T_ ? grad_log_sum + b * on.D + h : nullptr;
                backward_tile<MEAN>(
                    power, g, tile, p(t, h), p.stride, rows, out(t, h), out.stride, on.kept(b, t / TILE, 0) + h, on.kept(b, t / TILE, 1) + h,
                    end, u + h - first);
            });
        }
        if (grad_past)
            for (int h = first; h < last; h++) grad_past[b * on.D + h] = count ? u[h - first] : 0.0f;
        return 0;
    });
}

template <class T, bool MEAN>
int backward_whole(const RelnetLinear& a, const void* grad, void* grad_source, void* grad_target) {
    const Problem<T> on{a};
    return on.run([&](int64_t b, int first, int last) {
        const PowerOfTwo power;
        const int64_t count = on.real_in(b, 0, on.T_);
        const float share = share_of(count);
        const Rows<const T> p = on.source(b), g_rows = on.grad(grad, b), q = on.target(b);
        const Rows<T> out = on.result(grad_source, b, on.T_), out_q = MEAN ? on.result(grad_target, b, on.S) : Rows<T>{};
        each_group(first, last, [&](auto g, int h) {
            for (int v = 0; v < g.SIZE; v++) {
                const Sums sums{g.read(on.kept(b, 0, 0) + h, v), g.read(on.kept(b, 0, 1) + h, v), zero()};
                V U = zero();
                for (int64_t j = 0; j < on.S; j += TILE) {
                    V part = zero();
                    for (int64_t k = j; k < std::min(on.S, j + TILE); k++)
                        part = add(part, weight<MEAN>(power, g, v, sums, share, g_rows(k, h), q(k, h), MEAN ? out_q(k, h) : nullptr));
                    U = add(U, part);
                }
                for (int64_t t = 0; t < on.T_; t++) {
                    V gradient = zero();
                    if (!a.key_mask || a.key_mask[b * on.T_ + t])
                        gradient = mul(negative_exp(power, difference(g.read(p(t, h), v), sums.maximum)), U);
                    g.write(out(t, h), v, gradient);
                }
            }
        });
        return 0;
    });
}

// ---- one instance a result and storage ----

template <class T, bool MEAN>
int backward(const RelnetLinear& a, const void* grad, const float* grad_log_sum, void* grad_source, void* grad_target, float* grad_past) {
    const Problem<T> on{a};
    on.write_to(grad_source, on.T_);
    if (MEAN) on.write_to(grad_target, on.S);
    return a.causal ? backward_causal<T, MEAN>(a, grad, grad_log_sum, grad_source, grad_target, grad_past)
                    : backward_whole<T, MEAN>(a, grad, grad_source, grad_target);
}

int forward_any(const RelnetLinear& a, void* y, float* log_sum, int64_t* count) {
    const auto run = a.bfloat16 ? (a.mean ? forward<BFloat16, true> : forward<BFloat16, false>) : a.mean ? forward<float, true> : forward<float, false>;
    return run(a, y, log_sum, count);
}

int backward_any(const RelnetLinear& a, const void* grad, const float* grad_log_sum, void* grad_source, void* grad_target, float* grad_past) {
    const auto run =
        a.bfloat16 ? (a.mean ? backward<BFloat16, true> : backward<BFloat16, false>) : a.mean ? backward<float, true> : backward<float, false>;
    return run(a, grad, grad_log_sum, grad_source, grad_target, grad_past);
}

}  // namespace

extern const LinearKernels linear_kernels{forward_any, backward_any};

}  // namespace relnet::RELNET_ISA
