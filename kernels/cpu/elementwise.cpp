// The small operations between the matrix products, each one pass over its rows.

#include "vec.h"

namespace {

constexpr float LOG2_E = 1.44269504f;

INLINE vf silu(vf x) { return x / (v_set(1.0f) + v_exp2(x * v_set(-LOG2_E))); }

}  // namespace

// output[row] = silu(gate) * up, where a row of gate_up holds the gate, then up, `width` each.
EXPORT void pagemill_silu_and_mul(const float *gate_up, float *output, int64_t rows,
                                  int64_t width) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *gate = gate_up + 2 * row * width, *up = gate + width;
        float *out = output + row * width;
        int64_t i = 0;
        for (; i + VL <= width; i += VL) v_store(out + i, silu(v_load(gate + i)) * v_load(up + i));
        for (; i < width; i++) out[i] = silu(v_set(gate[i]))[0] * up[i];
    }
}
