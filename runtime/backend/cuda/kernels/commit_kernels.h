// commit_kernels.h: the optimizer step on the device, in four launches: sums of squares by chunk, the decision (one
// block), the optimizer, running statistics. An optimizer with norms needs two more before it: sums of squares of each
// tensor by chunk, and their ratios. A factored one needs four: see there.
//
// The decision reads the chunk sums, the step's own sums in the flat buffer and the device step. It writes a verdict
// with everything that the other kernels need, so that nothing goes through the host: whether to commit, the factor
// for gradients, the learning rate, the bias corrections. The order of every sum is fixed: a tree within a chunk, then
// chunk by chunk.
//
// Whatever the optimizer and the statistics write is checked while it is written (dt_device_step.spoiled).
//
// With train.shard a kernel does the chunks that its rank owns (dt_commit_args.states), and its sums are 0 for the others:
// added over the ranks they are complete. What one rank found spoiled travels behind the sums of the next step's gradient.
//
// The optimizer also writes the packed copy of each parameter that has one in a plain form (dt_pack_form), with the
// bits that pack_weight and pack_bias (weights_kernels.h) would give. A step that is not committed leaves the copies
// alone too.
//
// The optimizers' arithmetic is in backend/optimizers/, written once for this file and for the CPU's vectors.
#ifndef DT_COMMIT_KERNELS_H
#define DT_COMMIT_KERNELS_H

#include "backend/commit.h"
#include "backend/cuda/kernels/block_math.h"
#include "config/words.h"
#include "optimizers_all.h"

enum { DT_COMMIT_THREADS = 256, DT_COMMIT_CHUNK = DT_CHUNK };

typedef struct dt_flat_add_args {
    float *dst; // f32, on the device; src is added to dst
    const float *src;
    int64_t n;
} dt_flat_add_args;

// Flat buffers are 64-byte aligned; the last elements may not fill a vector.
DT_KERNEL(flat_add, dt_flat_add_args) {
    DT_THREADS(t) {
        const int64_t stride = DT_GRID * DT_BLOCK_DIM * 8;
        for (int64_t i = (DT_BLOCK * DT_BLOCK_DIM + t) * 8; i < a->n; i += stride) {
            float x[8], y[8];
            dt_get8_part(a->dst, DT_F32, i, a->n, 0.0f, x); // multiples of 8: aligned vectors of 16 bytes
            dt_get8_part(a->src, DT_F32, i, a->n, 0.0f, y);
            for (int k = 0; k < 8; k++) x[k] += y[k]; // both buffers of f32, one rounding
            dt_put8_part(a->dst, DT_F32, i, a->n, x);
        }
    }
}

typedef struct dt_flat_swap_args {
    float *x, *y; // exchanged
    int64_t n;
} dt_flat_swap_args;

DT_KERNEL(flat_swap, dt_flat_swap_args) {
    DT_THREADS(t) {
        const int64_t stride = DT_GRID * DT_BLOCK_DIM * 8;
        for (int64_t i = (DT_BLOCK * DT_BLOCK_DIM + t) * 8; i < a->n; i += stride) {
            float x[8], y[8];
            dt_get8_part(a->x, DT_F32, i, a->n, 0.0f, x);
            dt_get8_part(a->y, DT_F32, i, a->n, 0.0f, y);
            // a thread has read both before it writes
            dt_put8_part(a->x, DT_F32, i, a->n, y);
            dt_put8_part(a->y, DT_F32, i, a->n, x);
        }
    }
}

// i: the first of n entries for which the condition on `i` holds, as it does for all behind it; n: none.
#define DT_COMMIT_FIND(i, n, holds)                                                                                    \
    int i = (n) / 2;                                                                                                   \
    for (int low_ = 0, high_ = (n); low_ < high_; i = (low_ + high_) / 2) {                                            \
        if (holds)                                                                                                     \
            high_ = i;                                                                                                 \
        else                                                                                                           \
            low_ = i + 1;                                                                                              \
    }

// Which chunk of slots and average is the state of a chunk; -1: another rank's.
DT_FN int64_t dt_commit_state(const int32_t *states, int64_t chunk) {
    return states ? states[chunk] : chunk;
}

typedef struct dt_flat_squares_args {
    const float *x;
    int64_t n;
    double *partial;       // one per chunk; with states the step's `spoiled` behind them
    const int32_t *states; // dt_commit_args
    const dt_device_step *step;
} dt_flat_squares_args;

// One block per chunk, of DT_COMMIT_THREADS threads.
DT_KERNEL(flat_squares, dt_flat_squares_args) {
    DT_SHARED(double, sum, DT_COMMIT_THREADS);
    const int64_t length = dt_commit_state(a->states, DT_BLOCK) < 0 ? 0 : DT_CHUNK; // another rank's chunk: sum 0
    const int64_t begin = DT_BLOCK * DT_CHUNK;
    const int64_t end = begin + length < a->n ? begin + length : a->n;
    DT_THREADS(t) {
        double s = 0;
        for (int64_t i = begin + t * 8; i < end; i += DT_COMMIT_THREADS * 8) {
            float x[8];
            dt_get8_part(a->x, DT_F32, i, end, 0.0f, x);
            // double: squares of large gradients would overflow f32
            for (int k = 0; k < 8; k++) s += (double)x[k] * (double)x[k];
        }
        sum[t] = s;
    }
    for (int half = DT_COMMIT_THREADS / 2; half; half /= 2) DT_THREADS(t) {
            if (t < half) sum[t] += sum[t + half];
        }
    DT_THREADS(t) {
        if (t == 0) a->partial[DT_BLOCK] = sum[0];
        // behind all chunks: this rank's flag for the exchange
        if (t == 0 && DT_BLOCK == 0 && a->states) a->partial[DT_GRID] = a->step->spoiled;
    }
}

// ---- the decision ----------------------------------------------------------------------------------
enum { DT_COMMIT_STARTS = 16 };
typedef struct dt_commit_verdict {
    int commit;                         // 0: leave everything as it is
    dt_update update[DT_COMMIT_STARTS]; // what the segments of each start share
} dt_commit_verdict;

typedef struct dt_commit_decide_args {
    const float *flat;
    const double *partial;
    int64_t n_chunks;
    int shares; // behind partial: how many ranks have found the step before spoiled
    dt_commit_limits limits;
    float clip_value, hyper[DT_MAX_HYPER];
    int kind; // dt_optimizer_id
    int n_starts;
    int64_t starts[DT_COMMIT_STARTS]; // steps at which segments start
    dt_device_step *step;
    dt_step_numbers *numbers; // ring, pinned host memory
    dt_commit_verdict *verdict;
} dt_commit_decide_args;

DT_FN dt_update dt_commit_begin(const dt_commit_decide_args *a, int64_t t, double grad_scale) {
    // updates of all segments with the same start
    dt_update u;
    for (int i = 0; i < DT_MAX_HYPER; i++) u.hyper[i] = a->hyper[i];
    u.grad_scale = (float)grad_scale;
    // limits of scaled gradients, applied before scaling
    u.clip = a->clip_value > 0 ? a->clip_value / u.grad_scale : INFINITY;
    u.lr = a->step->lr;
    // set for each segment, from its rules
    u.decay = 0.0f;
    u.ratio = 1.0f;
    u.first = t <= 1;
    u.bias[0] = u.bias[1] = 1; // until an optimizer's _begin sets them
    switch (a->kind) {
#define WORD(id, ...)                                                                                                  \
    case DT_OPTIMIZER_##id:                                                                                            \
        dt_##id##_begin(&u, t);                                                                                        \
        break;
#include "config/optimizers.def"
#undef WORD
    }
    return u;
}

DT_FN void dt_commit_write_verdict(const dt_commit_decide_args *a, double squares) {
    dt_device_step *s = a->step;
    dt_step_numbers *out = a->numbers + s->step % DT_NUMBERS_RING;
    const int64_t t = s->step + 1 - s->n_skipped;
    double factor;
    if (a->shares && a->partial[a->n_chunks] > 0) s->spoiled = 1;
    a->verdict->commit = dt_commit_decide(&a->limits, a->flat, squares, s, out, &factor);
    for (int i = 0; i < a->n_starts; i++) // what starts later has its own count, with skipped steps
        a->verdict->update[i] = dt_commit_begin(a, a->starts[i] ? s->step + 1 - a->starts[i] : t, factor);
    DT_PUBLISH_SYSTEM(&out->step, s->step); // last: the host polls it (read_counter of step_device.c)
}

// One block of DT_COMMIT_THREADS threads.
DT_KERNEL(commit_decide, dt_commit_decide_args) {
    DT_SHARED(double, part, DT_COMMIT_THREADS);
    DT_SHARED(double, sum, 1);
    DT_THREADS(t) {
        if (t == 0) sum[0] = 0;
    }
    for (int64_t c = 0; c < a->n_chunks; c += DT_COMMIT_THREADS) {
        DT_THREADS(t) {
            part[t] = c + t < a->n_chunks ? a->partial[c + t] : 0;
        }
        DT_THREADS(t) {
            if (t) continue; // one thread: chunks in order
            double s = sum[0];
            for (int k = 0; k < DT_COMMIT_THREADS; k++) s += part[k];
            sum[0] = s;
        }
    }
    DT_THREADS(t) {
        if (t == 0) dt_commit_write_verdict(a, sum[0]);
    }
}

// ---- adaptive clipping -----------------------------------------------------------------------------
typedef struct dt_commit_clip_args {
    const dt_commit_verdict *verdict;
    const dt_clip_tensor *tensors; // ascending
    int n_tensors;
    const float *master;
    float *grad;
    float share;
} dt_commit_clip_args;

// One block per row.
DT_KERNEL(commit_clip, dt_commit_clip_args) {
    DT_SHARED(double, weights, DT_COMMIT_THREADS);
    DT_SHARED(double, gradients, DT_COMMIT_THREADS); // sums of squares
    // the tensor of this block's row
    DT_COMMIT_FIND(tensor, a->n_tensors, a->tensors[tensor].first + a->tensors[tensor].n > DT_BLOCK)
    const dt_clip_tensor r = a->tensors[tensor];
    const int64_t at = r.offset + (DT_BLOCK - r.first) * r.length; // element of the row's beginning
    DT_THREADS(t) {
        double w = 0, g = 0;
        for (int64_t i = t; i < r.length; i += DT_COMMIT_THREADS) {
            w += (double)a->master[at + i] * (double)a->master[at + i];
            g += (double)a->grad[at + i] * (double)a->grad[at + i];
        }
        weights[t] = w;
        gradients[t] = g;
    }
    for (int half = DT_COMMIT_THREADS / 2; half; half /= 2) DT_THREADS(t) {
            if (t < half) weights[t] += weights[t + half], gradients[t] += gradients[t + half];
        }
    DT_THREADS(t) {
        const double scale = (double)a->verdict->update[0].grad_scale;
        // norms below 1e-3 count as 1e-3, as in NFNets' AGC
        const double most = (double)a->share * fmax(sqrt(weights[0]), 1e-3);
        const double norm = sqrt(gradients[0]) * scale; // of the unscaled gradient
        const float factor = (float)(most / fmax(norm, 1e-6));
        // rows within the limit stay as they are
        for (int64_t i = t; a->verdict->commit && norm >= most && i < r.length; i += DT_COMMIT_THREADS)
            a->grad[at + i] *= factor;
    }
}

// ---- factored second moments -----------------------------------------------------------------------
// The method of backend/cpu/flat_cpu.c, in other orders of sums. A tensor is divided into bands of rows, a block for each:
// (1) rows' averages, and the band's sums of columns and of squared weights, (2) columns' averages, over the bands, (3) the
// step in the gradient's place and its square, (4) its scale. What a band has follows from the tensor alone: so do the bits.
enum {
    DT_FACTOR_ROWS = 32,
    DT_FACTOR_ELEMENTS = 16384,
    DT_FACTOR_COLUMNS = 32
}; // at least, of a band; of a block of (2)

typedef struct dt_commit_factored {
    dt_factored f;      // start: index of dt_commit_verdict.update; sums: of its bands' columns
    int64_t band, tile; // its first among those of all tensors
    int64_t band_rows, n_bands;
} dt_commit_factored;

typedef struct dt_commit_factor_args {
    const dt_commit_verdict *verdict;
    const dt_commit_factored *tensors; // ascending
    int n_tensors;
    const float *master;
    float *grad, *slots[DT_MAX_SLOTS];
    double *columns, *bands; // a column's sum in each band; a band's squares: of weights, of the step
    double *totals;          // a tensor's squared weights and mean of the rows' averages
    dt_device_step *step;
} dt_commit_factor_args;

DT_FN double dt_commit_square(const dt_update *u, float g) {
    const float x = fmaxf(fminf(g, u->clip), -u->clip) * u->grad_scale; // clipped, then unscaled
    return (double)x * (double)x;
}
// The average moves towards the mean square; returns 0 if it stays finite, else NaN.
DT_FN float dt_commit_average(float *x, const dt_update *u, double mean) {
    const double newest = pow(u->bias[0], -0.8); // Adafactor's 1 - beta2 at step t: t^-0.8
    *x += (float)(newest * (mean - (double)*x)); // as torch's lerp
    return *x - *x;                              // NaN if infinite or NaN
}

typedef struct dt_commit_band {
    int tensor;
    dt_commit_factored g;
    int64_t first, end; // rows; none where there is nothing to do
    dt_update u;
} dt_commit_band;

DT_FN dt_commit_band dt_commit_band_of(const dt_commit_factor_args *a, int64_t block) {
    dt_commit_band b;
    DT_COMMIT_FIND(i, a->n_tensors, a->tensors[i].band + a->tensors[i].n_bands > block)
    b.tensor = i;
    b.g = a->tensors[i];
    b.u = a->verdict->update[b.g.f.start];
    b.first = (block - b.g.band) * b.g.band_rows;
    b.end = b.first + b.g.band_rows < b.g.f.rows ? b.first + b.g.band_rows : b.g.f.rows;
    if (!a->verdict->commit || b.g.f.frozen) b.end = b.first;
    return b;
}

DT_KERNEL(commit_factor_rows, dt_commit_factor_args) {
    DT_SHARED(double, sum, DT_COMMIT_THREADS);
    const dt_commit_band b = dt_commit_band_of(a, DT_BLOCK);
    const dt_factored f = b.g.f;
    const float *weights = a->master + f.offset, *grad = a->grad + f.offset;
    const int64_t n_columns = b.first < b.end ? f.cols : 0;
    int tx = 1;                                            // threads over columns
    while (tx < DT_COMMIT_THREADS && tx < f.cols) tx *= 2; // a power of two, at most the block
    const int ty = DT_COMMIT_THREADS / tx, group = tx < 32 ? tx : 32;
    // columns' sums: tx columns at once, ty rows apart
    for (int64_t c0 = 0; c0 < n_columns; c0 += tx) {
        DT_THREADS(t) {
            const int64_t c = c0 + t % tx;
            double s = 0;
            for (int64_t r = b.first + t / tx; c < f.cols && r < b.end; r += ty)
                s += dt_commit_square(&b.u, grad[r * f.cols + c]);
            sum[t] = s;
        }
        DT_TREE(t, half, ty, tx, sum[t] += sum[t + half * tx]);
        DT_THREADS(t) {
            if (t < tx && c0 + t < f.cols) a->columns[f.sums + (DT_BLOCK - b.g.band) * f.cols + c0 + t] = sum[t];
        }
    }
    // rows' averages: a group of threads for each row
    for (int64_t r0 = b.first; r0 < b.end && !f.vector; r0 += DT_COMMIT_THREADS / group) {
        DT_THREADS(t) {
            const int64_t r = r0 + t / group;
            double s = 0;
            for (int64_t c = t % group; r < b.end && c < f.cols; c += group)
                s += dt_commit_square(&b.u, grad[r * f.cols + c]);
            sum[t] = s;
        }
        DT_TREE(t, half, group, 1, sum[t] += sum[t + half]);
        DT_THREADS(t) {
            const int64_t r = r0 + t / group;
            if (t % group == 0 && r < b.end &&
                dt_commit_average(&a->slots[0][f.at[0] + r], &b.u, sum[t] / (double)f.cols) != 0)
                a->step->spoiled = 1;
        }
    }
    DT_THREADS(t) {
        double s = 0;
        for (int64_t i = b.first * f.cols + t; i < b.end * f.cols; i += DT_COMMIT_THREADS)
            s += (double)weights[i] * (double)weights[i];
        sum[t] = s;
    }
    DT_TREE(t, half, DT_COMMIT_THREADS, 1, sum[t] += sum[t + half]);
    DT_THREADS(t) {
        if (t == 0) a->bands[2 * DT_BLOCK] = sum[0];
    }
}

// A block for DT_FACTOR_COLUMNS columns of a tensor: their averages, over the bands. The first also makes the totals.
DT_KERNEL(commit_factor_columns, dt_commit_factor_args) {
    DT_SHARED(double, sum, DT_COMMIT_THREADS);
    DT_SHARED(double, row, DT_COMMIT_THREADS);
    DT_COMMIT_FIND(i, a->n_tensors,
                   a->tensors[i].tile + (a->tensors[i].f.cols + DT_FACTOR_COLUMNS - 1) / DT_FACTOR_COLUMNS > DT_BLOCK)
    const dt_commit_factored g = a->tensors[i];
    const dt_factored f = g.f;
    const dt_update u = a->verdict->update[f.start];
    const int64_t c0 = (DT_BLOCK - g.tile) * DT_FACTOR_COLUMNS, rows = a->verdict->commit && !f.frozen ? f.rows : 0;
    const int64_t first_rows = c0 == 0 ? rows : 0;                            // of the totals
    float *column = f.vector ? a->slots[0] + f.at[0] : a->slots[1] + f.at[1]; // a vector has one average
    DT_THREADS(t) {
        const int64_t c = c0 + t % DT_FACTOR_COLUMNS;
        double s = 0;
        for (int64_t k = t / DT_FACTOR_COLUMNS; rows && c < f.cols && k < g.n_bands;
             k += DT_COMMIT_THREADS / DT_FACTOR_COLUMNS)
            s += a->columns[f.sums + k * f.cols + c];
        sum[t] = s;
    }
    DT_TREE(t, half, DT_COMMIT_THREADS / DT_FACTOR_COLUMNS, DT_FACTOR_COLUMNS,
            sum[t] += sum[t + half * DT_FACTOR_COLUMNS]);
    DT_THREADS(t) {
        if (rows && t < DT_FACTOR_COLUMNS && c0 + t < f.cols &&
            dt_commit_average(&column[c0 + t], &u, sum[t] / (double)rows) != 0)
            a->step->spoiled = 1;
    }
    DT_THREADS(t) {
        double w = 0, s = 0;
        for (int64_t k = t; first_rows && k < g.n_bands; k += DT_COMMIT_THREADS) w += a->bands[2 * (g.band + k)];
        for (int64_t r = t; r < first_rows && !f.vector; r += DT_COMMIT_THREADS)
            s += (double)a->slots[0][f.at[0] + r] / (double)rows;
        sum[t] = w;
        row[t] = s;
    }
    DT_TREE(t, half, DT_COMMIT_THREADS, 1, sum[t] += sum[t + half], row[t] += row[t + half]);
    DT_THREADS(t) {
        if (t == 0 && c0 == 0) a->totals[2 * i] = sum[0], a->totals[2 * i + 1] = row[0];
    }
}

DT_KERNEL(commit_factor_step, dt_commit_factor_args) {
    DT_SHARED(double, sum, DT_COMMIT_THREADS);
    const dt_commit_band b = dt_commit_band_of(a, DT_BLOCK);
    const dt_factored f = b.g.f;
    float *grad = a->grad + f.offset;
    const float *row = a->slots[0] + f.at[0], *column = a->slots[1] + f.at[1];
    DT_THREADS(t) {
        const double mean = fmax(a->totals[2 * b.tensor + 1], 0x1p-23);
        double s = 0;
        for (int64_t i = b.first * f.cols + t; i < b.end * f.cols; i += DT_COMMIT_THREADS) {
            const int64_t r = (uint32_t)i / (uint32_t)f.cols, c = i - r * f.cols; // fewer than 2^31 elements
            const float g = fmaxf(fminf(grad[i], b.u.clip), -b.u.clip) * b.u.grad_scale;
            // rank 1: row times column over the rows' mean
            const double moment = f.vector ? (double)row[c] : (double)row[r] * (double)column[c] / mean;
            grad[i] = (float)((double)g / sqrt(fmax(moment, 0x1p-46)));
            s += (double)grad[i] * (double)grad[i];
        }
        sum[t] = s;
    }
    DT_TREE(t, half, DT_COMMIT_THREADS, 1, sum[t] += sum[t + half]);
    DT_THREADS(t) {
        if (t == 0) a->bands[2 * DT_BLOCK + 1] = sum[0];
    }
}

DT_KERNEL(commit_factor_scale, dt_commit_factor_args) {
    DT_SHARED(double, sum, DT_COMMIT_THREADS);
    const dt_commit_band b = dt_commit_band_of(a, DT_BLOCK);
    const dt_factored f = b.g.f;
    const double n = (double)(f.rows * f.cols);
    float *grad = a->grad + f.offset;
    DT_THREADS(t) {
        double s = 0;
        for (int64_t k = t; b.first < b.end && k < b.g.n_bands; k += DT_COMMIT_THREADS)
            s += a->bands[2 * (b.g.band + k) + 1];
        sum[t] = s;
    }
    DT_TREE(t, half, DT_COMMIT_THREADS, 1, sum[t] += sum[t + half]);
    DT_THREADS(t) {
        // the parameter's own scale, and the step's root mean square clipped at 1
        const double rate = fmin((double)(b.u.lr * f.lr_scale), 1 / sqrt(b.u.bias[0])) *
                            fmax(1e-3, sqrt(a->totals[2 * b.tensor] / n)) / fmax(1.0, sqrt(sum[0] / n));
        for (int64_t i = b.first * f.cols + t; i < b.end * f.cols; i += DT_COMMIT_THREADS)
            grad[i] = (float)((double)grad[i] * rate);
    }
}

// ---- the optimizer ---------------------------------------------------------------------------------
typedef struct dt_commit_segment {
    int64_t offset, length;
    float lr_scale, decay;         // factor of the learning rate; weight decay
    int frozen, start;             // start: index of dt_commit_verdict.update
    int64_t first_chunk, n_chunks; // of the norms; none unless norms scale the update
    // The packed copy of the single parameter in the segment; NULL: none.
    void *packed;
    int64_t count; // elements of the parameter; a gap follows
    int type;
    uint32_t n_in, n_taps; // of the packed form (n_out, n_taps, n_in)
} dt_commit_segment;

typedef struct dt_commit_optimize_args {
    const dt_commit_verdict *verdict;
    const dt_commit_segment *segments; // ascending
    int n_segments;
    int kind; // dt_optimizer_id
    float *master, *slots[DT_MAX_SLOTS];
    const float *grad;
    const int32_t *states;        // dt_commit_args
    int own_master;               // they are master's, too
    float *average, average_rate; // dt_optimizer_args
    double *norms;                // two sums of squares per chunk of a scaled segment
    float *ratios;                // one per segment; NULL: the optimizer takes no norms
    dt_device_step *step;
} dt_commit_optimize_args;

DT_FN dt_update dt_commit_update_of(const dt_commit_optimize_args *a, int segment) {
    const dt_commit_segment *g = &a->segments[segment];
    dt_update u = a->verdict->update[g->start];
    u.lr *= g->lr_scale;
    u.decay = g->decay;
    u.ratio = a->ratios ? a->ratios[segment] : 1.0f;
    return u;
}

// A thread's eight elements are i .. i+3 and as many DT_COMMIT_APART behind them, so that the threads of a warp read
// and write neighbouring 16 bytes of f32. Those from `end` on do not exist; they read as 0.
enum { DT_COMMIT_APART = 4 * DT_COMMIT_THREADS };
// How many of the four elements of a half exist.
DT_FN int dt_commit_left(int64_t i, int half, int64_t end) {
    const int64_t left = end - i - half * DT_COMMIT_APART; // elements from the half's first on
    return left < 0 ? 0 : left > 4 ? 4 : (int)left;
}
DT_FN void dt_commit_get8(const float *p, int64_t i, int64_t end, float x[8]) {
    for (int h = 0; h < 2; h++) {
        const float *from = p + i + h * DT_COMMIT_APART;
        const int left = dt_commit_left(i, h, end);
        if (left == 4) {
            const dt_vec16 v = dt_load16(from);
            for (int k = 0; k < 4; k++) x[4 * h + k] = dt_of_bits(v.w[k]);
        } else {
            for (int k = 0; k < 4; k++) x[4 * h + k] = k < left ? from[k] : 0.0f;
        }
    }
}
DT_FN void dt_commit_put8(float *p, int64_t i, int64_t end, const float x[8]) {
    for (int h = 0; h < 2; h++) {
        float *to = p + i + h * DT_COMMIT_APART;
        const int left = dt_commit_left(i, h, end);
        if (left == 4) {
            dt_vec16 v;
            for (int k = 0; k < 4; k++) v.w[k] = dt_bits_of(x[4 * h + k]);
            dt_store16(to, v);
        } else {
            for (int k = 0; k < left; k++) to[k] = x[4 * h + k];
        }
    }
}

// A thread's eight elements of a parameter by each optimizer: their update, or (constant `measures`) p as it is and their
// direction in d. Their slots are `apart` elements behind them. Returns 0 if what the update wrote is finite, else NaN:
// x - x is 0 of a finite x only.
#define WORD(id, ...)                                                                                                  \
    DT_FN float dt_commit_one_##id(const dt_commit_optimize_args *a, const dt_update *u, int64_t i, int64_t end,       \
                                   int64_t apart, float p[8], int measures, float d[8]) {                              \
        float s[DT_MAX_SLOTS][8], g[8], bad = 0;                                                                       \
        for (int j = 0; j < dt_##id##_n_slots; j++) dt_commit_get8(a->slots[j] + apart, i, end, s[j]);                 \
        dt_commit_get8(a->grad, i, end, g);                                                                            \
        for (int k = 0; k < 8 && !dt_##id##_factored; k++) g[k] = fmaxf(fminf(g[k], u->clip), -u->clip);               \
        for (int k = 0; k < 8; k++) {                                                                                  \
            const int exists = k % 4 < dt_commit_left(i, k / 4, end);                                                  \
            float one[DT_MAX_SLOTS];                                                                                   \
            for (int j = 0; j < dt_##id##_n_slots; j++) one[j] = s[j][k];                                              \
            if (measures)                                                                                              \
                d[k] = exists ? dt_##id##_direction(p[k], one, g[k], u) : 0.0f;                                        \
            else                                                                                                       \
                dt_##id##_update(&p[k], one, g[k], u);                                                                 \
            for (int j = 0; j < dt_##id##_n_slots; j++) {                                                              \
                s[j][k] = one[j];                                                                                      \
                if (exists) bad += one[j] - one[j];                                                                    \
            }                                                                                                          \
            if (exists) bad += p[k] - p[k];                                                                            \
        }                                                                                                              \
        for (int j = 0; !measures && j < dt_##id##_n_slots; j++) dt_commit_put8(a->slots[j] + apart, i, end, s[j]);    \
        return bad;                                                                                                    \
    }
#include "config/optimizers.def"
#undef WORD

DT_FN float dt_commit_one(const dt_commit_optimize_args *a, const dt_update *u, int64_t i, int64_t end, int64_t apart,
                          float p[8], int measures, float d[8]) {
    switch (a->kind) {
#define WORD(id, ...)                                                                                                  \
    case DT_OPTIMIZER_##id:                                                                                            \
        return dt_commit_one_##id(a, u, i, end, apart, p, measures, d);
#include "config/optimizers.def"
#undef WORD
    }
    return 0;
}

// One block per chunk of a scaled segment: sums of squares of weights and direction, as in flat_squares.
DT_KERNEL(commit_norms, dt_commit_optimize_args) {
    DT_SHARED(double, weights, DT_COMMIT_THREADS);
    DT_SHARED(double, directions, DT_COMMIT_THREADS);
    // the segment of this block's chunk
    DT_COMMIT_FIND(i, a->n_segments, a->segments[i].first_chunk + a->segments[i].n_chunks > DT_BLOCK)
    const dt_commit_segment g = a->segments[i];
    const dt_update u = dt_commit_update_of(a, i);
    const int64_t chunk = g.offset / DT_CHUNK + DT_BLOCK - g.first_chunk; // number of the chunk in the flat buffer
    // distance between parameter and its state
    const int64_t state = dt_commit_state(a->states, chunk), apart = (state - chunk) * DT_CHUNK;
    const int64_t first = chunk * DT_CHUNK, last = first + (state < 0 ? 0 : DT_CHUNK); // nothing to sum: another rank's
    const int64_t from = g.offset > first ? g.offset : first;
    const int64_t to = g.offset + g.length < last ? g.offset + g.length : last;
    DT_THREADS(t) {
        double w = 0, v = 0;
        for (int64_t k = from + t * 4; k < to; k += 2 * DT_COMMIT_APART) {
            float p[8], d[8];
            dt_commit_get8(a->master + (a->own_master ? apart : 0), k, to, p);
            dt_commit_one(a, &u, k, to, apart, p, 1, d); // 1: measure only
            for (int j = 0; j < 8; j++) {
                w += (double)p[j] * (double)p[j];
                v += (double)d[j] * (double)d[j];
            }
        }
        weights[t] = w;
        directions[t] = v;
    }
    for (int half = DT_COMMIT_THREADS / 2; half; half /= 2) DT_THREADS(t) {
            if (t < half) weights[t] += weights[t + half], directions[t] += directions[t + half];
        }
    DT_THREADS(t) {
        if (t == 0) {
            a->norms[2 * DT_BLOCK] = weights[0]; // read by commit_ratios
            a->norms[2 * DT_BLOCK + 1] = directions[0];
        }
    }
}

// One thread per segment: its ratio, from the sums of its chunks in order.
DT_KERNEL(commit_ratios, dt_commit_optimize_args) {
    DT_THREADS(t) {
        const int64_t i = DT_BLOCK * DT_BLOCK_DIM + t;
        if (i >= a->n_segments) continue;
        const dt_commit_segment g = a->segments[i];
        double weights = 0, directions = 0;
        for (int64_t c = g.first_chunk; c < g.first_chunk + g.n_chunks; c++) { // the order of chunks is fixed
            weights += a->norms[2 * c];
            directions += a->norms[2 * c + 1];
        }
        float ratio = 1.0f;
        const dt_update u = dt_commit_update_of(a, (int)i);
        switch (g.n_chunks ? a->kind : -1) {
#define WORD(id, ...)                                                                                                  \
    case DT_OPTIMIZER_##id:                                                                                            \
        ratio = dt_##id##_ratio(weights, directions, &u);                                                              \
        break;
#include "config/optimizers.def"
#undef WORD
        }
        a->ratios[i] = ratio;
    }
}

// Writes elements at .. at+3 of the parameter into its copy.
DT_FN void dt_commit_pack(const dt_commit_segment *g, int64_t at, const float p[4]) {
    const uint32_t per_out = g->n_in * g->n_taps; // elements per output channel
    if (at >= g->count) return;                   // the gap behind the parameter
    if (g->n_in == 1 || g->n_taps == 1) {         // packed order equals dense order
        // 16-bit elements: four as one store
        dt_put4_part(g->packed, g->type, at, g->count, p);
        return;
    }
    // KCRS to KRSC, element by element
    uint32_t out = (uint32_t)at / per_out, rest = (uint32_t)at % per_out;
    uint32_t c = rest / g->n_taps, tap = rest % g->n_taps;
    for (int k = 0; k < 4 && at + k < g->count; k++) {
        // (k, r, s, c)
        dt_put(g->packed, g->type, (int64_t)out * per_out + tap * g->n_in + c, p[k]);
        const int next_c = tap + 1 == g->n_taps, next_out = next_c && c + 1 == g->n_in;
        tap = next_c ? 0 : tap + 1;
        c = next_out ? 0 : c + (uint32_t)next_c;
        out += (uint32_t)next_out;
    }
}

// One block per DT_COMMIT_CHUNK elements. Segments begin at multiples of 16. Three fit on a multiprocessor.
DT_KERNEL_BOUND(commit_optimize, dt_commit_optimize_args, DT_COMMIT_THREADS, 3) {
    const int64_t state = dt_commit_state(a->states, DT_BLOCK);
    const int64_t apart = (state - DT_BLOCK) * DT_COMMIT_CHUNK; // from a parameter's place to its state's
    const int commit = a->verdict->commit && state >= 0;        // state < 0: another rank updates the chunk
    const int64_t begin = DT_BLOCK * DT_COMMIT_CHUNK, end = begin + DT_COMMIT_CHUNK;
    float *const master = a->master + (a->own_master ? apart : 0);
    // segments that overlap the chunk
    DT_COMMIT_FIND(i, a->n_segments, a->segments[i].offset + a->segments[i].length > begin)
    for (; commit && i < a->n_segments; i++) {
        const dt_commit_segment g = a->segments[i];
        const dt_update u = dt_commit_update_of(a, i);
        const int64_t from = g.offset > begin ? g.offset : begin;
        const int64_t to = g.offset + g.length < end ? g.offset + g.length : end;
        if (g.offset >= end) break;
        if (g.frozen) continue;
        DT_THREADS(t) {
            for (int64_t k = from + t * 4; k < to; k += 2 * DT_COMMIT_APART) {
                float p[8];
                dt_commit_get8(master, k, to, p);
                // any thread may set the flag: all write 1
                if (dt_commit_one(a, &u, k, to, apart, p, 0, p) != 0) a->step->spoiled = 1;
                dt_commit_put8(master, k, to, p);
                if (a->average) {
                    float m[8];
                    dt_commit_get8(a->average + apart, k, to, m);
                    for (int j = 0; j < 8; j++) m[j] += (p[j] - m[j]) * a->average_rate; // exponential moving average
                    dt_commit_put8(a->average + apart, k, to, m);
                }
                if (!g.packed) continue; // no packed copy
                dt_commit_pack(&g, k - g.offset, p);
                // the thread's second half, a block's width further
                if (k + DT_COMMIT_APART < to) dt_commit_pack(&g, k + DT_COMMIT_APART - g.offset, p + 4);
            }
        }
    }
}

// ---- running statistics ----------------------------------------------------------------------------
typedef struct dt_commit_buffer {
    int64_t buffer, stat, count; // places in the flat buffers; elements
    float momentum;
} dt_commit_buffer;

typedef struct dt_commit_buffers_args {
    const dt_commit_verdict *verdict;
    const dt_commit_buffer *rules;
    const float *flat;
    float *buffer, *average; // average: of the buffers; NULL: none
    // micro-batches of a step add up in `stat`
    float inverse; // 1 / number of micro-batches
    float average_rate;
    dt_device_step *step;
} dt_commit_buffers_args;

// One block per rule.
DT_KERNEL(commit_buffers, dt_commit_buffers_args) {
    const dt_commit_buffer r = a->rules[DT_BLOCK];
    const int commit = a->verdict->commit;
    DT_THREADS(t) {
        float *b = a->buffer + r.buffer;
        const float *s = a->flat + r.stat;
        for (int64_t i = t; commit && i < r.count; i += DT_BLOCK_DIM) {
            // as PyTorch: momentum is the share of the new value
            b[i] = (1.0f - r.momentum) * b[i] + r.momentum * (s[i] * a->inverse);
            if (b[i] - b[i] != 0) a->step->spoiled = 1; // 0 of a finite value only
            if (!a->average) continue;
            float *m = a->average + r.buffer + i;
            // average of the buffer, with the parameters' rate
            *m += (b[i] - *m) * a->average_rate;
        }
    }
}

#endif
