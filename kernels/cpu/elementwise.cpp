// The operations between the matrix products, each one pass over its rows.

#include "vec.h"

namespace {

constexpr float LOG2_E = 1.44269504f;

INLINE vf silu(vf x) {
    vf power = x * v_set(-LOG2_E), most = v_set(126.0f);
    vf result = x / (v_set(1.0f) + v_exp2(power > most ? most : power));
    return power > most ? x * v_set(0.0f) : result;  // where v_exp2 ends; NaN for an infinity
}

INLINE void scale_row(const float *row, float factor, const float *weight, float *output,
                      int64_t width) {
    for (int64_t i = 0; i < width; i += VL) {
        int64_t n = width - i;
        v_store(output + i, v_load(row + i, n) * v_set(factor) * v_load(weight + i, n), n);
    }
}

}  // namespace

// output[row] = silu(gate) * up, where a row of gate_up holds the gate, then up, `width` each.
EXPORT void pagemill_silu_and_mul(const float *gate_up, float *output, int64_t rows,
                                  int64_t width) {
#pragma omp parallel for schedule(static) if (rows * width > SMALL_WORK)
    for (int64_t row = 0; row < rows; row++) {
        const float *gate = gate_up + 2 * row * width, *up = gate + width;
        float *out = output + row * width;
        for (int64_t i = 0; i < width; i += VL) {
            int64_t n = width - i;
            v_store(out + i, silu(v_load(gate + i, n)) * v_load(up + i, n), n);
        }
    }
}

// output[row] = x[row] / rms(x[row]) * weight
EXPORT void pagemill_rms_norm(const float *x, const float *weight, float eps, float *output,
                              int64_t rows, int64_t width) {
#pragma omp parallel for schedule(static) if (rows * width > SMALL_WORK)
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * width;
        scale_row(in, inverse_rms(in, width, eps), weight, output + row * width, width);
    }
}

// residual[row] += x[row], then output[row] is the normalized sum.
EXPORT void pagemill_add_rms_norm(const float *x, float *residual, const float *weight, float eps,
                                  float *output, int64_t rows, int64_t width) {
#pragma omp parallel for schedule(static) if (rows * width > SMALL_WORK)
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * width;
        float *sum = residual + row * width;
        for (int64_t i = 0; i < width; i += VL) {
            int64_t n = width - i;
            v_store(sum + i, v_load(sum + i, n) + v_load(in + i, n), n);
        }
        scale_row(sum, inverse_rms(sum, width, eps), weight, output + row * width, width);
    }
}
