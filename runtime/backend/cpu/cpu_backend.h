// cpu_backend.h: what the files of the CPU backend share: the ISA, its block size, the kernels' names.
//
// ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE, …) selects oneDNN's kernels and the custom ones (base/os.h), so that one
// machine can test them all.
//
//   ISA       block   activations of convolutional layers
//   AVX512    16      BLOCKED nChw16c
//   AVX2      8       BLOCKED nChw8c
//   GENERIC   8       BLOCKED nChw8c (oneDNN's SSE4.1 kernels)
//   SVE256    8       BLOCKED nChw8c
//   NEON      4       BLOCKED nChw4c for custom kernels, else DENSE (oneDNN has no vector kernels)
#ifndef DT_BACKEND_CPU_BACKEND_H
#define DT_BACKEND_CPU_BACKEND_H

#include "backend/backend.h"
#include "base/os.h"

bool dt_cpu_has_bf16(void); // AVX512_BF16: bf16 runs at full speed
bool dt_cpu_has_amx(void);  // and oneDNN uses it
int dt_cpu_block(void);     // of channels: 16, 8 or 4
// The layout that a convolution wants for its input: DENSE up to four channels (images, first layers), else
// BLOCKED. Convolutions' outputs are BLOCKED.
dt_layout dt_cpu_conv_layout(int64_t channels);

static inline dt_layout dt_blocked(int block) {
    return (dt_layout){DT_BLOCKED, (uint8_t)block};
}

// Range number `part` of [0, n), which is divided into n_parts at multiples of `grain`.
static inline void dt_cpu_share(int64_t n, int64_t grain, int part, int n_parts, int64_t *begin, int64_t *end) {
    const int64_t units = (n + grain - 1) / grain;
    *begin = units * part / n_parts * grain;
    *end = units * (part + 1) / n_parts * grain;
    if (*begin > n) *begin = n;
    if (*end > n) *end = n;
}

// The choices of a CPU backend, and whether Winograd is among the candidates.
struct dt_cpu_choices *dt_cpu_choices_of(const dt_backend *b);
bool dt_cpu_allows_winograd(const dt_backend *b);
dt_status dt_cpu_choose_precision(dt_backend *b, const dt_graph *fp32, const dt_graph *bf16, int n_replicas,
                                  int *faster);

// ---- flat buffers: elements [begin, end), on the calling thread (see backend.h) ------------------------
void dt_cpu_flat_add(struct dt_backend *b, float *dst, const float *src, int64_t begin, int64_t end);
bool dt_cpu_flat_factor(struct dt_backend *b, const dt_optimizer_args *a, int begin, int end);
bool dt_cpu_flat_optimize(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end);
void dt_cpu_flat_clip_agc(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end);
void dt_cpu_flat_norms(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end);
void dt_cpu_flat_sum_squares(struct dt_backend *b, const float *x, int64_t n, double *partial, int64_t begin,
                             int64_t end);

// Copies a tensor into another dtype and layout; OpenMP over `threads`. See dt_backend.reorder.
void dt_cpu_reorder(struct dt_backend *b, int threads, const dt_shape *shape, const void *src, dt_dtype src_type,
                    dt_layout src_layout, void *dst, dt_dtype dst_type, dt_layout dst_layout, void *stream);

// ---- kernels ------------------------------------------------------------------------------------
#define OP(id, min_in, max_in, n_out, amp, cpu, cuda) DT_KERNEL_DECLARE_##cpu(dt_cpu_##id)
#include "graph/ops.def"
#undef OP
const dt_kernel *dt_cpu_kernel(const dt_backend *b, dt_op op, bool backward); // dt_backend.kernel

#endif
