// reorder_cpu.c: copies between layouts and types.
//
// Equal layouts are a copy or a cast of the whole buffer. Otherwise the tensor is divided into tiles of one
// channel block by up to 1024 pixels of an image, and each tile is transposed between planes (DENSE) and pixels
// (NHWC, BLOCKED) in vector registers. BLOCKED pixels are stored whole, so padding channels become zero. u8 and
// i32 are only copied, and 8 bits moved one by one between DENSE and NHWC. The block is always the vector's width.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/simd_rows.h"

#include <assert.h>
#include <string.h>

enum { PARALLEL_BYTES = 65536 };

static void copy_flat(int threads, const void *src, dt_dtype st, void *dst, dt_dtype dt, int64_t n) {
    const dt_simd_elementwise *e = dt_simd_get()->elementwise;
    const int64_t src_size = (int64_t)dt_dtype_size(st), dst_size = (int64_t)dt_dtype_size(dt);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && n * src_size > PARALLEL_BYTES)
    for (int t = 0; t < threads; t++) {
        int64_t b, end;
        dt_cpu_share(n, 64, t, threads, &b, &end);
        const char *from = (const char *)src + b * src_size;
        char *to = (char *)dst + b * dst_size;
        if (st == dt)
            memcpy(to, from, (size_t)((end - b) * src_size));
        else if (dt == DT_BF16)
            e->to_bf16(to, from, end - b);
        else
            e->to_f32(to, from, end - b);
    }
}

typedef struct side {
    dt_layout layout;
    int64_t size;              // of an element
    int64_t image, c, tile_px; // elements between images, between channels, between a tile's pixels
    int64_t block_stride;      // BLOCKED: between channel blocks
} side;

static side reorder_cpu_side_of(dt_layout l, dt_dtype t, int64_t channels, int64_t pixels) {
    side s = {.layout = l, .size = (int64_t)dt_dtype_size(t)};
    if (l.kind == DT_BLOCKED) {
        s.image = (channels + l.block - 1) / l.block * l.block * pixels;
        s.tile_px = l.block;
        s.block_stride = pixels * l.block;
    } else {
        s.image = channels * pixels;
        s.c = l.kind == DT_DENSE ? pixels : 1;
        s.tile_px = l.kind == DT_DENSE ? 1 : channels;
    }
    return s;
}

// Where channel c of pixel p of image n lies; c is a multiple of the vector's width.
static int64_t reorder_cpu_at(const side *s, int64_t n, int64_t c, int64_t p) {
    int64_t i = n * s->image + p * s->tile_px;
    if (s->layout.kind == DT_BLOCKED)
        i += c / s->layout.block * s->block_stride + c % s->layout.block;
    else
        i += c * s->c;
    return i * s->size;
}

typedef struct job {
    const char *src;
    char *dst;
    side from, to;
    int from_type, to_type; // DT_ROW_*
    int64_t images, channels, pixels;
} job;

static void copy_tile(const job *j, int64_t n, int64_t c, int64_t p, int64_t n_pixels) {
    const dt_simd_rows *k = dt_simd_get()->rows;
    const int width = dt_simd_get()->width;
    const int left = (int)(j->channels - c < width ? j->channels - c : width);
    const bool src_planes = j->from.layout.kind == DT_DENSE, dst_planes = j->to.layout.kind == DT_DENSE;
    const dt_reorder_tile t = {.src = j->src + reorder_cpu_at(&j->from, n, c, p),
                               .dst = j->dst + reorder_cpu_at(&j->to, n, c, p),
                               .src_stride = src_planes ? j->from.c : j->from.tile_px,
                               .dst_stride = dst_planes ? j->to.c : j->to.tile_px,
                               .n_channels = left,
                               .n_stored = j->to.layout.kind == DT_BLOCKED ? width : left,
                               .n_pixels = n_pixels};
    if (src_planes)
        k->planes_to_pixels[j->from_type][j->to_type](&t);
    else if (dst_planes)
        k->pixels_to_planes[j->from_type][j->to_type](&t);
    else
        k->pixels_to_pixels[j->from_type][j->to_type](&t);
}

static void copy_tiles(const job *j, int threads) {
    const int width = dt_simd_get()->width;
    const int64_t blocks = (j->channels + width - 1) / width;
    const int64_t run = 1024, runs = (j->pixels + run - 1) / run;
    const int64_t n_tiles = j->images * blocks * runs;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && n_tiles > 1)
    for (int64_t i = 0; i < n_tiles; i++) {
        const int64_t n = i / (blocks * runs), c = i / runs % blocks * width, p = i % runs * run;
        copy_tile(j, n, c, p, j->pixels - p < run ? j->pixels - p : run);
    }
}

static void move_bytes(const job *j, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < j->images * j->channels; i++)
        for (int64_t p = 0; p < j->pixels; p++)
            j->dst[reorder_cpu_at(&j->to, i / j->channels, i % j->channels, p)] =
                j->src[reorder_cpu_at(&j->from, i / j->channels, i % j->channels, p)];
}

void dt_cpu_reorder(struct dt_backend *b, int threads, const dt_shape *shape, const void *src, dt_dtype src_type,
                    dt_layout src_layout, void *dst, dt_dtype dst_type, dt_layout dst_layout, void *stream) {
    if (threads < 1) threads = 1;
    const bool flat = dt_layout_equal(src_layout, dst_layout) || shape->n < 2;
    if (flat) {
        copy_flat(threads, src, src_type, dst, dst_type, dt_layout_elements(src_layout, shape));
        return;
    }
    const bool bytes = dt_dtype_size(src_type) == 1;
    assert(bytes ? src_type == dst_type : dt_dtype_is_float(src_type) && dt_dtype_is_float(dst_type));
    assert(src_layout.kind != DT_BLOCKED || src_layout.block == dt_cpu_block());
    assert(dst_layout.kind != DT_BLOCKED || dst_layout.block == dt_cpu_block());
    int64_t pixels = 1;
    for (int i = 2; i < shape->n; i++) pixels *= shape->d[i];
    const job j = {.src = src,
                   .dst = dst,
                   .from = reorder_cpu_side_of(src_layout, src_type, shape->d[1], pixels),
                   .to = reorder_cpu_side_of(dst_layout, dst_type, shape->d[1], pixels),
                   .from_type = src_type == DT_BF16 ? DT_ROW_BF16 : DT_ROW_F32,
                   .to_type = dst_type == DT_BF16 ? DT_ROW_BF16 : DT_ROW_F32,
                   .images = shape->d[0],
                   .channels = shape->d[1],
                   .pixels = pixels};
    if (bytes)
        move_bytes(&j, threads);
    else
        copy_tiles(&j, threads);
}
