// Vectors of floats, written once for AVX-512, AVX2 and NEON: the vector extensions of GCC and
// Clang, and the few operations that these lack.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VL 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define VL 8
#elif defined(__aarch64__)
#include <arm_neon.h>
#define VL 4
#else
#error "no vector extension that these kernels know is switched on"
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

// Less work than this many numbers takes less time than waking the other threads.
constexpr int64_t SMALL_WORK = 16384;

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float vf_unaligned __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint16_t half;  // the bits of an IEEE binary16

INLINE vf v_load(const float *p) { return *(const vf_unaligned *)p; }
INLINE void v_store(float *p, vf x) { *(vf_unaligned *)p = x; }
INLINE vf v_set(float x) { return x - vf{}; }
INLINE vf v_max(vf a, vf b) { return a > b ? a : b; }

INLINE vf v_load(const half *p) {
#if VL == 16
    // GCC warns of the unmasked form, which starts from an undefined register.
    return (vf)_mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256((const __m256i *)p));
#elif VL == 8
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    return (vf)vcvt_f32_f16(vld1_f16((const float16_t *)p));
#endif
}

// Rounds to the nearest binary16; what is too large becomes an infinity.
INLINE void v_store(half *p, vf x) {
#if VL == 16
    // The masked form, as GCC 12 warns of an uninitialized value in the plain one.
    __m256i halves = _mm512_maskz_cvtps_ph(0xffff, (__m512)x, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((__m256i *)p, halves);
#elif VL == 8
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
#else
    vst1_f16((float16_t *)p, vcvt_f16_f32((float32x4_t)x));
#endif
}

// The first n numbers of a vector, for the ends of rows; what is not loaded is 0.
template <typename T>
INLINE vf v_load(const T *p, int64_t n) {
    if (n >= VL) return v_load(p);
    T lanes[VL] = {};
    for (int i = 0; i < n; i++) lanes[i] = p[i];
    return v_load(lanes);
}

template <typename T>
INLINE void v_store(T *p, vf x, int64_t n) {
    if (n >= VL) return v_store(p, x);
    T lanes[VL];
    v_store(lanes, x);
    for (int i = 0; i < n; i++) p[i] = lanes[i];
}

// Sum and greatest of a vector's numbers, by halves.
INLINE float v_sum(vf x) {
#if VL == 16
    return _mm512_reduce_add_ps((__m512)x);
#elif VL == 8
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#else
    return vaddvq_f32((float32x4_t)x);
#endif
}

INLINE float v_greatest(vf x) {
#if VL == 16
    return _mm512_reduce_max_ps((__m512)x);
#elif VL == 8
    __m128 half = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
    return vmaxvq_f32((float32x4_t)x);
#endif
}

// 0, 1, 2 and so on.
INLINE vi v_lanes() {
#if VL == 16
    return vi{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif VL == 8
    return vi{0, 1, 2, 3, 4, 5, 6, 7};
#else
    return vi{0, 1, 2, 3};
#endif
}

// 2 to the power of x: 0 below -126, NaN for NaN; relative error about 2e-7. For x up to 127.
INLINE vf v_exp2(vf x) {
    vf low = v_set(-126.0f);
    vf bounded = x < low ? low : x;  // keeps NaN, for which no comparison is true
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
    vf magic = v_set(12582912.0f);
    vf shifted = bounded + magic;
    vf fraction = bounded - (shifted - magic);  // -0.5 to 0.5
    // Taylor's series of 2^f; its first term that is left out is below 2e-8.
    vf p = v_set(1.5403530e-4f);
    p = p * fraction + v_set(1.3333558e-3f);
    p = p * fraction + v_set(9.6181291e-3f);
    p = p * fraction + v_set(5.5504109e-2f);
    p = p * fraction + v_set(2.4022651e-1f);
    p = p * fraction + v_set(6.9314718e-1f);
    p = p * fraction + v_set(1.0f);
    vf power = (vf)((vi)p + (((vi)shifted - (vi)magic) << 23));
    power = p == p ? power : p;
    return x < low ? vf{} : power;
}

// 1 over the root mean square of a row.
INLINE float inverse_rms(const float *row, int64_t width, float eps) {
    vf squares{};
    for (int64_t i = 0; i < width; i += VL) {
        vf x = v_load(row + i, width - i);
        squares += x * x;
    }
    return 1.0f / std::sqrt(v_sum(squares) / (float)width + eps);
}
