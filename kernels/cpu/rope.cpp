// From the product of the query, key and value projections to rotated queries and written blocks.

#include "vec.h"

namespace {

// A head of one token: first half and second half turn together.
struct Head {
    const float *x, *cos, *sin, *norm;  // norm: a weight for each dimension, or null
    int64_t half;                       // head_dim / 2
    float factor;                       // what normalization scales by

    Head(const float *head, const float *cos, const float *sin, const float *norm, float eps,
         int64_t half)
        : x(head), cos(cos), sin(sin), norm(norm), half(half), factor(1.0f) {
        if (norm != nullptr) factor = inverse_rms(head, 2 * half, eps);
    }

    __attribute__((always_inline)) vf normalized(int64_t i, int64_t n) const {
        vf part = v_load(x + i, n);
        return norm == nullptr ? part : part * v_set(factor) * v_load(norm + i, n);
    }

    // Calls store(dimension, numbers, how many of them count) for all dimensions.
    template <typename Store>
    __attribute__((always_inline)) void rotate(Store store) const {
        for (int64_t i = 0; i < half; i += VL) {
            int64_t n = half - i;
            vf a = normalized(i, n), b = normalized(half + i, n);
            vf c = v_load(cos + i, n), s = v_load(sin + i, n);
            store(i, a * c - b * s, n);
            store(half + i, b * c + a * s, n);
        }
    }
};

template <typename T>
INLINE void store_column(T *column, int64_t stride, vf x, int64_t n) {
    T lanes[VL];
    v_store(lanes, x);
    if (n > VL) n = VL;
    for (int64_t lane = 0; lane < n; lane++) column[lane * stride] = lanes[lane];
}

// Keys are [blocks, kv_heads, head_dim, block_size], values [blocks, kv_heads, block_size,
// head_dim]. A row of qkv holds the query heads, the key heads, the value heads.
template <typename T>
INLINE void rope_kv_write(const float *qkv, const float *cos, const float *sin,
                          const float *q_norm, const float *k_norm, float eps,
                          const int64_t *slots, float *queries, T *keys, T *values,
                          int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                          int64_t block_size) {
    int64_t half = head_dim / 2, width = (heads + 2 * kv_heads) * head_dim;
#pragma omp parallel for schedule(static) if (tokens * width > SMALL_WORK)
    for (int64_t token = 0; token < tokens; token++) {
        const float *row = qkv + token * width;
        const float *c = cos + token * half, *s = sin + token * half;
        for (int64_t h = 0; h < heads; h++) {
            float *out = queries + (token * heads + h) * head_dim;
            Head(row + h * head_dim, c, s, q_norm, eps, half)
                .rotate([&](int64_t i, vf x, int64_t n) { v_store(out + i, x, n); });
        }
        int64_t block = slots[token] / block_size, offset = slots[token] % block_size;
        for (int64_t h = 0; h < kv_heads; h++) {
            int64_t place = (block * kv_heads + h) * head_dim * block_size;
            T *column = keys + place + offset, *out = values + place + offset * head_dim;
            const float *key = row + (heads + h) * head_dim, *value = key + kv_heads * head_dim;
            Head(key, c, s, k_norm, eps, half).rotate([&](int64_t i, vf x, int64_t n) {
                store_column(column + i * block_size, block_size, x, n);
            });
            for (int64_t i = 0; i < head_dim; i += VL)
                v_store(out + i, v_load(value + i, head_dim - i), head_dim - i);
        }
    }
}

}  // namespace

#define ROPE_KV_WRITE(NAME, T)                                                                   \
    EXPORT void NAME(const float *qkv, const float *cos, const float *sin, const float *q_norm,   \
                     const float *k_norm, float eps, const int64_t *slots, float *queries,        \
                     T *keys, T *values, int64_t tokens, int64_t heads, int64_t kv_heads,         \
                     int64_t head_dim, int64_t block_size) {                                      \
        rope_kv_write(qkv, cos, sin, q_norm, k_norm, eps, slots, queries, keys, values, tokens,   \
                      heads, kv_heads, head_dim, block_size);                                     \
    }

ROPE_KV_WRITE(pagemill_rope_kv_write_float32, float)
ROPE_KV_WRITE(pagemill_rope_kv_write_float16, half)
