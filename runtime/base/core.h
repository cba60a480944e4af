// core.h: what every file needs: errors, arenas, shapes of tensors.
#ifndef DT_BASE_CORE_H
#define DT_BASE_CORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- status -------------------------------------------------------------------------------------------------------

// How every function of dtrain reports failure.
//
// A function that can fail returns dt_status, whose value is also the program's exit code. dt_fail()
// writes the message once, where it happens. Callers forward the status with DT_TRY and may add their place
// with dt_fail_context(). The message lives in thread-local storage until the next dt_fail() on that
// thread. A worker thread that fails passes on a copy of dt_error_message(), and the receiver calls
// dt_fail() with it.
//
// A message states what happened, where (file:line of the YAML, record, rank), and what to do.
// Programming errors assert; they are not statuses.

typedef enum dt_status {
    DT_OK = 0,
    DT_E_USAGE = 2,      // command line or config
    DT_E_DATA = 3,       // a dataset or record cannot be read
    DT_E_CKPT = 4,       // no checkpoint loads
    DT_E_STORAGE = 5,    // cannot write (run directory, disk full)
    DT_E_NUMERIC = 6,    // NaN or infinity
    DT_E_INTERNAL = 70,  // dtrain or a library broke
    DT_E_PREEMPTED = 75, // stopped by a signal after saving: run again
    DT_E_PEER = 240      // a rank is lost or hangs: run again
} dt_status;

// Records the message (printf format, no newline) for this thread and returns `code`.
dt_status dt_fail(dt_status code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Puts "context: " before the current message and returns `code`.
dt_status dt_fail_context(dt_status code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// The message of the last failure on this thread; "" when there was none. Borrowed.
const char *dt_error_message(void);
void dt_error_clear(void);

// Keeps the first message across clean-up that may fail too. Takes no heap memory.
enum { DT_ERROR_BYTES = 2048 };
typedef struct dt_error_kept {
    char message[DT_ERROR_BYTES];
} dt_error_kept;
dt_error_kept dt_error_keep(void);
void dt_error_restore(const dt_error_kept *kept);

#define DT_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        dt_status dt_try_ = (expr);                                                                                    \
        if (dt_try_ != DT_OK) return dt_try_;                                                                          \
    } while (0)

// For functions with one exit: stores the error in `st` and jumps.
#define DT_TRY_GOTO(st, expr, label)                                                                                   \
    do {                                                                                                               \
        (st) = (expr);                                                                                                 \
        if ((st) != DT_OK) goto label;                                                                                 \
    } while (0)

// ---- arena --------------------------------------------------------------------------------------------------------

// Many small allocations that are freed together.
//
// Blocks are added on demand; pointers stay valid until dt_arena_fini. Not thread-safe. Running out of
// memory ends the process with one line and exit code 70: metadata is small, and the backend, which
// returns a status, allocates the big buffers (flat buffers, batch rings).

typedef struct dt_arena {
    struct dt_arena_block *head; // newest block
    size_t used_bytes;           // over all blocks
} dt_arena;

void dt_arena_init(dt_arena *a);
void dt_arena_fini(dt_arena *a);
void *dt_arena_alloc(dt_arena *a, size_t n_bytes); // zeroed, 16-byte aligned
char *dt_arena_strdup(dt_arena *a, const char *s);
char *dt_arena_printf(dt_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Heap helpers that end the process in the same way instead of returning NULL, for small metadata.
void *dt_xcalloc(size_t n, size_t size);
void *dt_xrealloc(void *p, size_t n_bytes);
// Room for one more than n items of `size` bytes; doubles the list where it is full.
void *dt_xgrow(void *list, size_t n, size_t size);
char *dt_xstrdup(const char *s);
char *dt_xprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Replaces *text, a heap string or NULL, by itself and what is printed behind it.
void dt_xappend(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// The next multiple of `to`.
static inline size_t dt_align_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

// ---- tensor -------------------------------------------------------------------------------------------------------

// Element type and logical shape of a tensor. How its elements lie in memory is its layout, which
// only plans and backends know.

enum { DT_MAX_DIMS = 6 };

typedef enum dt_dtype { DT_F32, DT_BF16, DT_F16, DT_I32, DT_U8, DT_I8, DT_DTYPE_COUNT } dt_dtype;

// Logical shape, outermost first; images are (N,C,H,W). n = 0 is a scalar.
typedef struct dt_shape {
    int n;
    int64_t d[DT_MAX_DIMS];
} dt_shape;

static inline dt_shape dt_shape_of(int n, int64_t a, int64_t b, int64_t c, int64_t d) {
    dt_shape s = {n, {a, b, c, d}};
    for (int i = n; i < 4; i++) s.d[i] = 0;
    return s;
}
#define dt_shape0()           dt_shape_of(0, 0, 0, 0, 0)
#define dt_shape1(a)          dt_shape_of(1, a, 0, 0, 0)
#define dt_shape2(a, b)       dt_shape_of(2, a, b, 0, 0)
#define dt_shape3(a, b, c)    dt_shape_of(3, a, b, c, 0)
#define dt_shape4(a, b, c, d) dt_shape_of(4, a, b, c, d)

size_t dt_dtype_size(dt_dtype t);
const char *dt_dtype_name(dt_dtype t); // "f32", "bf16", …
bool dt_dtype_is_float(dt_dtype t);    // f32, bf16, f16
int64_t dt_shape_elements(const dt_shape *s);
// Whether sizes are 0 to DT_MAX_SIZE and elements at most DT_MAX_ELEMENTS, more than any memory. All tensors of a
// graph are so (dt_graph_add_value): sums and products of a few of their sizes, and bytes, need no check, and
// libraries that count a size in 32 bits can.
#define DT_MAX_SIZE     ((int64_t)1 << 30)
#define DT_MAX_ELEMENTS ((int64_t)1 << 46)
bool dt_shape_is_sound(const dt_shape *s);
bool dt_shape_equal(const dt_shape *a, const dt_shape *b);
// "(4,32,96,103)" into buf; returns buf.
const char *dt_shape_print(const dt_shape *s, char *buf, size_t cap);

#endif
