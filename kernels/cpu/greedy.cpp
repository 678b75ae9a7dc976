// The likeliest token of each row of logits.

#include "vec.h"

namespace {

constexpr int32_t NO_TOKEN = -1;

// The best logits of VL interleaved columns and their ids. A lane that is not finite makes
// `not_finite` NaN there: an infinity less itself is NaN.
struct Best {
    vf logit, not_finite{};
    vi id{};

    __attribute__((always_inline)) Best() : logit(v_set(-__builtin_inff())) {}

    __attribute__((always_inline)) void see(vf x, vi ids) {
        vi better = x > logit;
        logit = better ? x : logit;
        id = better ? ids : id;
        not_finite += x - x;
    }
};

INLINE int64_t greedy_token(const float *logits, int64_t vocab_size) {
    constexpr int CHAINS = 4;  // independent, as one alone would wait for each comparison
    const vi lanes = v_lanes();
    Best best[CHAINS];
    int64_t i = 0;
    for (; i + CHAINS * VL <= vocab_size; i += CHAINS * VL)
#pragma GCC unroll 4
        for (int chain = 0; chain < CHAINS; chain++) {
            int32_t first = (int32_t)i + chain * VL;
            best[chain].see(v_load(logits + first), lanes + (vi{} + first));
        }
    float top = -__builtin_inff(), not_finite = 0;
    int32_t token = 0;
    for (const Best &chain : best)
        for (int lane = 0; lane < VL; lane++) {
            not_finite += chain.not_finite[lane];
            float x = chain.logit[lane];
            if (x > top || (x == top && chain.id[lane] < token)) top = x, token = chain.id[lane];
        }
    for (; i < vocab_size; i++) {
        not_finite += logits[i] - logits[i];
        if (logits[i] > top) top = logits[i], token = (int32_t)i;
    }
    return not_finite == 0 ? token : NO_TOKEN;
}

}  // namespace

// The lowest id among the largest logits of each row; NO_TOKEN where a logit is not finite.
EXPORT void pagemill_greedy_tokens(const float *logits, int64_t *tokens, int64_t rows,
                                   int64_t vocab_size) {
#pragma omp parallel for schedule(static) if (rows * vocab_size > SMALL_WORK)
    for (int64_t row = 0; row < rows; row++)
        tokens[row] = greedy_token(logits + row * vocab_size, vocab_size);
}
