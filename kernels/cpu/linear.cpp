// Products of rows with a matrix, each sum of which has the same bits whatever else is computed.
//
// A sum takes its products in the order of the inputs, each by one fused multiply-add. Neither the
// number of rows, nor a row's place among them, nor threads, nor the width of vectors change that,
// and what is kept in memory between two runs of inputs is not rounded on the way.

#include "vec.h"

namespace {

constexpr int PANEL = 32;                 // outputs side by side in memory
constexpr int VECTORS = VL == 4 ? 4 : 2;  // of outputs that are summed together
constexpr int STRIP = VECTORS * VL;
constexpr int TILE = VL == 16 ? 12 : 6;   // rows whose sums fit the registers
constexpr int64_t ROWS = 96;              // whose inputs stay in the second cache
constexpr int64_t RUN = 1024;             // inputs whose weights stay there, a panel of them
constexpr int64_t SMALL_PRODUCT = 16 * SMALL_WORK;  // multiply-adds

INLINE vf v_fma(vf a, vf b, vf c) {
#if VL == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VL == 8
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
}

struct Product {
    const float *x, *weight, *bias;  // bias may be null
    float *output;
    int64_t rows, inputs, outputs;
};

// Adds the products of `count` inputs to R rows of one strip's sums, of which `width` are wanted.
template <int R>
void add_products(const Product &p, int64_t row, int64_t input, int64_t count, int64_t output,
                  int64_t width) {
    // The strip's weights, input after input; and the rows' inputs, reached from each third row.
    const int64_t panel = output / PANEL * PANEL;
    const float *weight = p.weight + (panel * p.inputs + input * PANEL) + (output - panel);
    const float *x[(R + 2) / 3];
    for (int i = 0; i < (R + 2) / 3; i++) x[i] = p.x + (row + 3 * i) * p.inputs + input;
    const int64_t stride = p.inputs;
    float *out = p.output + row * p.outputs + output;
    vf sum[R][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            const int64_t n = width - v * VL;
            if (input > 0)
                sum[r][v] = v_load(out + r * p.outputs + v * VL, n);
            else
                sum[r][v] = p.bias == nullptr ? vf{} : v_load(p.bias + output + v * VL, n);
        }
    for (int64_t k = 0; k < count; k++, weight += PANEL) {
        vf w[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) w[v] = v_load(weight + v * VL);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            vf factor = v_set(x[r / 3][r % 3 * stride + k]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sum[r][v] = v_fma(factor, w[v], sum[r][v]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            v_store(out + r * p.outputs + v * VL, sum[r][v], width - v * VL);
}

using AddProducts = decltype(&add_products<1>);
constexpr AddProducts ADD_PRODUCTS[] = {
    add_products<1>, add_products<2>,  add_products<3>,  add_products<4>,
    add_products<5>, add_products<6>,
#if VL == 16
    add_products<7>, add_products<8>,  add_products<9>,  add_products<10>,
    add_products<11>, add_products<12>,
#endif
};

// One panel of outputs of the rows from `begin` on.
void multiply_panel(const Product &p, int64_t begin, int64_t panel) {
    const int64_t rows = p.rows - begin < ROWS ? p.rows - begin : ROWS;
    const int64_t tiles = (rows + TILE - 1) / TILE;
    for (int64_t input = 0; input < p.inputs; input += RUN) {
        const int64_t count = p.inputs - input < RUN ? p.inputs - input : RUN;
        // Tiles of almost the same height: a low one costs nearly what a full one does.
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t first = tile * rows / tiles, height = (tile + 1) * rows / tiles - first;
            for (int64_t output = panel * PANEL; output < (panel + 1) * PANEL; output += STRIP)
                if (output < p.outputs)
                    ADD_PRODUCTS[height - 1](p, begin + first, input, count, output,
                                             p.outputs - output);
        }
    }
}

}  // namespace

// output[row] = weight x[row] + bias. The weight lies in panels of 32 outputs, in each of them the
// 32 weights of one input after those of the one before; missing outputs of the last are 0.
EXPORT void pagemill_batch_invariant_linear(const float *x, const float *weight, const float *bias,
                                            float *output, int64_t rows, int64_t inputs,
                                            int64_t outputs) {
    const Product product{x, weight, bias, output, rows, inputs, outputs};
    const int64_t panels = (outputs + PANEL - 1) / PANEL, blocks = (rows + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(dynamic) if (rows * inputs * outputs > SMALL_PRODUCT)
    for (int64_t i = 0; i < blocks * panels; i++)
        multiply_panel(product, i / panels * ROWS, i % panels);
}
