// Cosine and sine of rotary position embedding, number by number.

#include "vec.h"

// cos and sin of position * inv_freq, each [tokens, half]: the angle is rounded to float32, its
// cosine and sine are computed in float64. Vectors of another width would round the last of a
// row otherwise than the rest.
EXPORT void pagemill_rope_cos_sin(const int64_t *positions, const float *inv_freq, double scale,
                                  float *cosines, float *sines, int64_t tokens, int64_t half) {
#pragma omp parallel for schedule(static) if (tokens * half > SMALL_WORK / 16)
    for (int64_t token = 0; token < tokens; token++) {
        const float position = (float)positions[token];
        for (int64_t i = 0; i < half; i++) {
            const double angle = position * inv_freq[i];
            cosines[token * half + i] = (float)(std::cos(angle) * scale);
            sines[token * half + i] = (float)(std::sin(angle) * scale);
        }
    }
}
