// simd.c: one table an ISA, made of the tables that simd_*.c export (see simd.h).
#include "backend/cpu/simd.h"

#define TABLE(isa, width, depthwise_conv, winograd_conv)                                                               \
    {                                                                                                                  \
        width, &dt_simd_rows_##isa, &dt_simd_elementwise_##isa, {&dt_simd_bn_f32_##isa, &dt_simd_bn_bf16_##isa},       \
            &dt_simd_pool_##isa, depthwise_conv, &dt_simd_flat_##isa, dt_simd_optimizer_##isa, winograd_conv,          \
            &dt_simd_int8_##isa                                                                                        \
    }

static const dt_simd tables[] = {
    [DT_CPU_GENERIC] = TABLE(generic, 8, NULL, NULL),
    [DT_CPU_AVX2] = TABLE(avx2, 8, &dt_simd_depthwise_avx2, &dt_simd_winograd_avx2),
    [DT_CPU_AVX512] = TABLE(avx512, 16, &dt_simd_depthwise_avx512, &dt_simd_winograd_avx512),
};

const dt_simd *dt_simd_get(void) {
    return &tables[dt_cpu_isa_get()];
}
