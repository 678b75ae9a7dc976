// Causal grouped-query attention that reads blocks of keys and values where they lie.
//
// A step is cut into tiles: some query tokens, all of which attend to one run of blocks. A tile
// goes over its run in spans of 64 tokens with the online softmax of Milakov and Gimelshein,
// 2018, arXiv:1805.02867. Where a query's tokens are spread over several runs (a prefix that it
// shares with other queries, then its own tokens, or parts of a long context), each tile leaves
// a partial result, and these are merged by their log-sum-exp (Juravsky et al., 2024,
// arXiv:2402.05099). No result depends on how many threads there are.

#include <cstdlib>

#include "vec.h"

namespace {

constexpr int SPAN = 64;                     // tokens whose scores are computed together
constexpr int SLICE = VL == 16 ? 12 : 6;     // rows that share each load of a key or value
constexpr float NONE = -__builtin_inff();

// One row of `tiles`: kernels/tiled_attention.py makes them.
struct Tile {
    int32_t first_query, num_queries, first_block, start, length, slot;
};

}  // namespace

struct Plan {
    int64_t block_size, num_kv_heads, group, head_dim, is_half;
    int64_t num_tiles, most_rows;
    const Tile *tiles;
    const int32_t *queries, *firsts, *ends, *blocks;
    const int32_t *sources;  // slot that a tile's query goes on from, -1 for none; or null
    float *partial;          // [slots, heads, padded head_dim]
    float *maxima, *sums;    // [slots, heads]
    int64_t num_phases;
    const int32_t *phase_starts;  // of tiles; those of a phase go on from the phases before
    int64_t num_merges;
    const int32_t *merge_queries, *merge_starts, *merge_slots;
};

namespace {

int64_t padded(int64_t head_dim) { return (head_dim + VL - 1) / VL * VL; }

// What one thread needs for one tile: queries, sums of values, scores, keys and values.
struct Scratch {
    float *queries, *output, *scores, *keys, *values, *maxima, *sums;
    float *memory;

    Scratch(int64_t rows, int64_t head_dim, int64_t width) {
        rows = (rows + VL - 1) / VL * VL;
        size_t floats = rows * (head_dim + width + 2) + SPAN * (SLICE + head_dim + width) + 4 * VL;
        memory = static_cast<float *>(std::aligned_alloc(64, (floats * 4 + 63) / 64 * 64));
        float *next = memory;
        auto take = [&next](int64_t n) { float *p = next; next += n; return p; };
        keys = take(SPAN * head_dim);
        values = take(SPAN * width);
        scores = take(SPAN * SLICE);
        output = take(rows * width);
        maxima = take(rows), sums = take(rows);
        queries = take(rows * head_dim);
    }
    ~Scratch() { std::free(memory); }
};

// keys[d][t]: the same dimension of neighbouring tokens side by side.
template <typename T>
INLINE void load_keys(const T *block, int64_t block_size, int64_t head_dim, float *keys) {
    for (int64_t d = 0; d < head_dim; d++)
        for (int64_t t = 0; t < block_size; t += VL > 8 && block_size == 8 ? 8 : VL) {
            if (VL > 8 && block_size == 8) {
#if VL == 16
                __m256 part;
                if constexpr (sizeof(T) == 2)
                    part = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(block + d * 8)));
                else
                    part = _mm256_loadu_ps((const float *)(block + d * 8));
                _mm256_storeu_ps(keys + d * SPAN, part);
#endif
            } else {
                v_store(keys + d * SPAN + t, v_load(block + d * block_size + t));
            }
        }
}

template <typename T>
INLINE void load_values(const T *rows, int64_t count, int64_t head_dim, int64_t width,
                        float *values) {
    for (int64_t t = 0; t < count; t++)
        for (int64_t d = 0; d < head_dim; d += VL)
            v_store(values + t * width + d, v_load(rows + t * head_dim + d, head_dim - d));
}

// Where the keys and values of a span are: in their blocks, or converted in a thread's scratch.
template <typename T>
struct Source {
    const T *keys[SPAN / VL];     // of VL neighbouring tokens each, dimension by dimension
    int64_t key_stride;           // from dimension to dimension
    const T *values[SPAN / 8];    // of `run` neighbouring tokens each
    int64_t run, value_stride;    // from token to token
};

// scores[r][t] = queries[r] . keys[.][t] for R rows and U vectors of tokens.
template <int R, int U, typename T>
INLINE void dot(const float *queries, const T *const *keys, int64_t stride, int64_t head_dim,
                float *scores) {
    vf sum[R][U] = {};
    for (int64_t d = 0; d < head_dim; d++) {
        vf key[U];
#pragma GCC unroll 4
        for (int u = 0; u < U; u++) key[u] = v_load(keys[u] + d * stride);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            vf q = v_set(queries[r * head_dim + d]);
#pragma GCC unroll 4
            for (int u = 0; u < U; u++) sum[r][u] += q * key[u];
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int u = 0; u < U; u++) v_store(scores + r * SPAN + u * VL, sum[r][u]);
}

// As many registers as there are hold sums: few rows take more vectors of tokens at once.
template <int R, typename T>
INLINE void dots(const float *queries, const Source<T> &source, int64_t head_dim, int64_t count,
                 float *scores) {
    const int64_t vectors = (count + VL - 1) / VL;
    int64_t v = 0;
    if constexpr (R <= SLICE / 2)
        for (; v + 4 <= vectors; v += 4)
            dot<R, 4>(queries, source.keys + v, source.key_stride, head_dim, scores + v * VL);
    for (; v + 2 <= vectors; v += 2)
        dot<R, 2>(queries, source.keys + v, source.key_stride, head_dim, scores + v * VL);
    for (; v < vectors; v++)
        dot<R, 1>(queries, source.keys + v, source.key_stride, head_dim, scores + v * VL);
}

template <int R, int D, typename T>
INLINE void add_values(const float *weights, const float *alphas, const Source<T> &source,
                       int64_t d, int64_t width, int64_t low, int64_t high, float *output) {
    vf sum[R][D];
    output += d;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int i = 0; i < D; i++)
            sum[r][i] = v_load(output + r * width + i * VL) * v_set(alphas[r]);
    for (int64_t t = low; t < high;) {
        const int64_t end = t / source.run * source.run + source.run;
        const T *values = source.values[t / source.run] + t % source.run * source.value_stride + d;
        for (; t < (end < high ? end : high); t++, values += source.value_stride) {
            vf value[D];
#pragma GCC unroll 4
            for (int i = 0; i < D; i++) value[i] = v_load(values + i * VL);
#pragma GCC unroll 12
            for (int r = 0; r < R; r++) {
                vf w = v_set(weights[r * SPAN + t]);
#pragma GCC unroll 4
                for (int i = 0; i < D; i++) sum[r][i] += w * value[i];
            }
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int i = 0; i < D; i++) v_store(output + r * width + i * VL, sum[r][i]);
}

// Turns a row's scores into weights; `low` to `high` are the tokens that it attends to. Leaves in
// `shift` what the row's sums until now are to be scaled by, as a power of two.
// A score that is NaN stays NaN, so that the row's answer is found out to be broken.
INLINE void soften(float *scores, int64_t low, int64_t high, int64_t count, float *maximum,
                   float *sum, float *shift) {
    const int64_t vectors = (count + VL - 1) / VL;
    if (low > 0 || high < vectors * VL) {
        for (int64_t v = 0; v < vectors; v++) {
            vi token = v_lanes() + (int32_t)(v * VL);
            vi hidden = (token < (int32_t)low) | (token >= (int32_t)high);
            v_store(scores + v * VL, hidden ? v_set(NONE) : v_load(scores + v * VL));
        }
    }
    vf most = v_set(*maximum);
    for (int64_t v = 0; v < vectors; v++) most = v_max(v_load(scores + v * VL), most);
    const float best = v_greatest(most);
    // With no token to attend to, any finite number will do: all weights become 0.
    const float origin = best == NONE ? 0.0f : best;
    vf total = {};
    for (int64_t v = 0; v < vectors; v++) {
        vf weight = v_exp2(v_load(scores + v * VL) - v_set(origin));
        v_store(scores + v * VL, weight);
        total += weight;
    }
    *shift = *maximum - origin;
    *maximum = best;
    *sum = v_sum(total);
}

template <int R, typename T>
void attend_slice(const Scratch &s, const Source<T> &source, int64_t row, const int32_t *firsts,
                  const int32_t *ends, int64_t group, int64_t position, int64_t count,
                  int64_t head_dim, int64_t width) {
    dots<R>(s.queries + row * head_dim, source, head_dim, count, s.scores);
    float sums[VL * ((R + VL - 1) / VL)] = {}, alphas[VL * ((R + VL - 1) / VL)] = {};
    for (int r = 0; r < R; r++) {
        int64_t query = (row + r) / group;
        int64_t low = firsts[query] - position, high = ends[query] - position;
        soften(s.scores + r * SPAN, low, high < count ? high : count, count, s.maxima + row + r,
               sums + r, alphas + r);
    }
    for (int r = 0; r < R; r += VL) v_store(alphas + r, v_exp2(v_load(alphas + r)));
    for (int r = 0; r < R; r++) s.sums[row + r] = s.sums[row + r] * alphas[r] + sums[r];
    // Values that no row attends to are not read: they may be NaN, and 0 times NaN is NaN.
    int64_t low = firsts[row / group] - position, high = ends[(row + R - 1) / group] - position;
    low = low > 0 ? low : 0, high = high < count ? high : count;
    constexpr int D = R <= SLICE / 2 ? 4 : 2;
    float *output = s.output + row * width;
    int64_t d = 0;
    for (; d + D * VL <= width; d += D * VL)
        add_values<R, D>(s.scores, alphas, source, d, width, low, high, output);
    for (; d < width; d += VL)
        add_values<R, 1>(s.scores, alphas, source, d, width, low, high, output);
}

template <typename T>
using AttendSlice = decltype(&attend_slice<1, T>);
template <typename T>
constexpr AttendSlice<T> ATTEND_SLICE[] = {
    attend_slice<1, T>,  attend_slice<2, T>,  attend_slice<3, T>, attend_slice<4, T>,
    attend_slice<5, T>,  attend_slice<6, T>,
#if VL == 16
    attend_slice<7, T>,  attend_slice<8, T>,  attend_slice<9, T>, attend_slice<10, T>,
    attend_slice<11, T>, attend_slice<12, T>,
#endif
};

// All rows of a tile on one span.
template <typename T>
INLINE void attend_span(const Scratch &s, const Source<T> &source, int64_t rows,
                        const int32_t *firsts, const int32_t *ends, int64_t group,
                        int64_t position, int64_t count, int64_t head_dim, int64_t width) {
    for (int64_t row = 0; row < rows; row += SLICE) {
        int64_t height = rows - row < SLICE ? rows - row : SLICE;
        // Queries come in the order of their positions: the last one reaches furthest.
        if (ends[(row + height - 1) / group] <= position) continue;
        if (firsts[row / group] >= position + count) continue;
        ATTEND_SLICE<T>[height - 1](s, source, row, firsts, ends, group, position, count, head_dim,
                                    width);
    }
}

// Asks for the keys and values of a span, so that they are on their way while another is computed.
template <typename T>
INLINE void fetch_span(const Plan &plan, const Tile &tile, int64_t head, int64_t begin,
                       const T *keys, const T *values) {
    const int64_t block_bytes = plan.block_size * plan.head_dim * sizeof(T);
    const int64_t end = tile.length - begin < SPAN ? tile.length : begin + SPAN;
    const int32_t *blocks = plan.blocks + tile.first_block;
    for (int64_t t = begin; t < end; t += plan.block_size) {
        int64_t place = (blocks[t / plan.block_size] * plan.num_kv_heads + head) * block_bytes;
        for (int64_t byte = 0; byte < block_bytes; byte += 64) {
            __builtin_prefetch((const char *)keys + place + byte);
            __builtin_prefetch((const char *)values + place + byte);
        }
    }
}

// A row's sums before its first span: none, or what an earlier tile left of them.
INLINE void begin_row(const Plan &plan, int64_t query, int64_t head, const Scratch &s,
                      int64_t row) {
    const int64_t width = padded(plan.head_dim), num_heads = plan.num_kv_heads * plan.group;
    const int64_t source = plan.sources == nullptr ? -1 : plan.sources[query];
    float *output = s.output + row * width;
    if (source < 0) {
        s.maxima[row] = NONE;
        s.sums[row] = 0;
        for (int64_t d = 0; d < width; d++) output[d] = 0;
        return;
    }
    const int64_t place = source * num_heads + head;
    s.maxima[row] = plan.maxima[place];
    s.sums[row] = plan.sums[place];
    for (int64_t d = 0; d < width; d++) output[d] = plan.partial[place * width + d];
}

template <typename T>
void attend_tile(const Plan &plan, const Tile &tile, int64_t head, const float *queries,
                 int64_t query_stride, const T *keys, const T *values, float scale,
                 const Scratch &s, float *output) {
    const int64_t head_dim = plan.head_dim, width = padded(head_dim), group = plan.group;
    const int64_t block_size = plan.block_size, rows = tile.num_queries * group;
    const int64_t num_heads = plan.num_kv_heads * group;
    const int32_t *tokens = plan.queries + tile.first_query;
    const int32_t *firsts = plan.firsts + tile.first_query, *ends = plan.ends + tile.first_query;
    // Scores are powers of two, which are cheaper than those of e.
    const float log2_scale = scale * 1.44269504088896f;
    for (int64_t row = 0; row < rows; row++) {
        const float *query =
            queries + tokens[row / group] * query_stride + (head * group + row % group) * head_dim;
        for (int64_t d = 0; d < head_dim; d++)
            s.queries[row * head_dim + d] = query[d] * log2_scale;
        begin_row(plan, tile.first_query + row / group, head * group + row % group, s, row);
    }
    // Whoever reads a number once converts it while it reads; for more, it is converted first.
    const bool in_place = (sizeof(T) == 4 || rows <= SLICE) && block_size % VL == 0 &&
                          head_dim % VL == 0;
    Source<T> blocks{{}, block_size, {}, block_size, head_dim};
    Source<float> converted{{}, SPAN, {s.values}, SPAN, width};
    for (int v = 0; v < SPAN / VL; v++) converted.keys[v] = s.keys + v * VL;
    for (int64_t begin = 0; begin < tile.length; begin += SPAN) {
        int64_t count = tile.length - begin < SPAN ? tile.length - begin : SPAN;
        int64_t position = tile.start + begin;
        if (begin + SPAN < tile.length)
            fetch_span(plan, tile, head, begin + SPAN, keys, values);
        else if (head + 1 < plan.num_kv_heads)
            fetch_span(plan, tile, head + 1, 0, keys, values);
        const int32_t *table = plan.blocks + tile.first_block + begin / block_size;
        for (int64_t t = 0; t < count; t += block_size) {
            int64_t place = (table[t / block_size] * plan.num_kv_heads + head) * block_size;
            const T *block_keys = keys + place * head_dim, *block_values = values + place * head_dim;
            int64_t left = count - t < block_size ? count - t : block_size;
            if (in_place) {
                for (int64_t k = 0; k < block_size; k += VL) blocks.keys[(t + k) / VL] = block_keys + k;
                blocks.values[t / block_size] = block_values;
            } else {
                load_keys(block_keys, block_size, head_dim, s.keys + t);
                load_values(block_values, left, head_dim, width, s.values + t * width);
            }
        }
        if (in_place)
            attend_span(s, blocks, rows, firsts, ends, group, position, count, head_dim, width);
        else
            attend_span(s, converted, rows, firsts, ends, group, position, count, head_dim, width);
    }
    for (int64_t row = 0; row < rows; row++) {
        const float *sums = s.output + row * width;
        int64_t query = row / group, h = head * group + row % group;
        if (tile.slot < 0) {
            float *out = output + (tokens[query] * num_heads + h) * head_dim;
            float inverse = 1.0f / s.sums[row];
            for (int64_t d = 0; d < head_dim; d++) out[d] = sums[d] * inverse;
        } else {
            int64_t place = (tile.slot + query) * num_heads + h;
            for (int64_t d = 0; d < width; d++) plan.partial[place * width + d] = sums[d];
            plan.maxima[place] = s.maxima[row];
            plan.sums[place] = s.sums[row];
        }
    }
}

template <typename T>
void attend_tiles(const Plan &plan, const float *queries, int64_t query_stride, const T *keys,
                  const T *values, float scale, float *output) {
    const int64_t heads = plan.num_kv_heads;
#pragma omp parallel if (plan.num_tiles * heads > 1)
    {
        Scratch scratch(plan.most_rows, plan.head_dim, padded(plan.head_dim));
        for (int64_t phase = 0; phase < plan.num_phases; phase++) {
            const int64_t begin = plan.phase_starts[phase], end = plan.phase_starts[phase + 1];
#pragma omp for schedule(dynamic, heads)
            for (int64_t i = begin * heads; i < end * heads; i++)
                attend_tile(plan, plan.tiles[i / heads], i % heads, queries, query_stride, keys,
                            values, scale, scratch, output);
        }
    }
}

void merge(const Plan &plan, int64_t index, float *output) {
    const int64_t num_heads = plan.num_kv_heads * plan.group, width = padded(plan.head_dim);
    const int32_t *slots = plan.merge_slots + plan.merge_starts[index];
    const int64_t count = plan.merge_starts[index + 1] - plan.merge_starts[index];
    for (int64_t h = 0; h < num_heads; h++) {
        float most = NONE;
        for (int64_t i = 0; i < count; i++) {
            float maximum = plan.maxima[slots[i] * num_heads + h];
            most = maximum > most ? maximum : most;
        }
        float total = 0;
        float *out = output + (plan.merge_queries[index] * num_heads + h) * plan.head_dim;
        for (int64_t d = 0; d < plan.head_dim; d++) out[d] = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t place = slots[i] * num_heads + h;
            // This part attends to nothing. If all of its scores are NaN, its sum is NaN.
            if (plan.sums[place] == 0) continue;
            float weight = v_exp2(v_set(plan.maxima[place] - most))[0];
            total += plan.sums[place] * weight;
            const float *part = plan.partial + place * width;
            for (int64_t d = 0; d < plan.head_dim; d++) out[d] += part[d] * weight;
        }
        for (int64_t d = 0; d < plan.head_dim; d++) out[d] /= total;
    }
}

}  // namespace

// queries: [tokens, heads, head_dim] with `query_stride` floats from token to token; keys and
// values of one layer, head by head, float32 or binary16; output: [tokens, heads, head_dim].
EXPORT void pagemill_paged_attention(const Plan *plan, const float *queries, int64_t query_stride,
                                     const void *keys, const void *values, float scale,
                                     float *output) {
    if (plan->is_half)
        attend_tiles(*plan, queries, query_stride, (const half *)keys, (const half *)values, scale,
                     output);
    else
        attend_tiles(*plan, queries, query_stride, (const float *)keys, (const float *)values,
                     scale, output);
#pragma omp parallel for schedule(static) if (plan->num_merges > 16)
    for (int64_t i = 0; i < plan->num_merges; i++) merge(*plan, i, output);
}
