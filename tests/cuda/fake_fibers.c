// fake_fibers.c: see fake_fibers.h.
//
// A fiber runs until it comes to a barrier or its end; then any one that may run, chosen at random, goes on. A barrier
// of the block opens when all threads have come to it, one of a warp when its 32 have.
//
// Every access arrives at touch() before it is made: the compiler calls __tsan_readN and __tsan_writeN, which are
// defined here. For each byte a cell keeps who wrote it last and who read it, and when: between which barriers of the
// block and, within these, of the warp. Pages of cells also keep what a byte was before the launch and what the first
// order made of it. Blocks of a launch have no order: what one writes no other may touch. Two that write the same value
// without a barrier are no race.
//
// A launch runs in several random orders of its threads, and blocks forwards or backwards, each from the same memory.
// Races abort the test, and so do threads that meet at different barriers and orders that leave other bits.
#undef _FORTIFY_SOURCE // its longjmp refuses to go to another stack
#include "fake_cuda.h"
#include "fake_kernels.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
bool fake_cuda_races(int orders) {
    return false;
}
bool fake_fibers_take(dt_cuda_kernel k, const void *args, dt_cuda_grid grid) {
    return false;
}
void fake_fibers_look(dt_cuda_kernel k, const void *args, dt_cuda_grid grid) {}
#else
#include "fake_fibers.h"
#include "fake_memory.h"

#include "base/core.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
    MOST = 1024,
    WARP = 32,
    STACK = 1 << 16,
    SAME = 1 << 13, // SAME: of a stack, so that unset bytes repeat
    PAGE = 4096,
    MOST_SHARED = 16
};
enum { ATOMIC = 1 << 14, WARPS = 1 << 15, MANY = 0xffff }; // of a thread's number: several of a warp, of all

fake_fiber_place fake_fiber;

// ---- memory ------------------------------------------------------------------------------------------
typedef struct cell {
    uint32_t wrote, read;                       // time; 0: never in this order
    uint16_t writer, reader, wrote_in, read_in; // in: time of the warp
} cell;
typedef struct page {
    struct page *next;
    uintptr_t at;
    cell cells[PAGE];
    uint8_t written[PAGE], before[PAGE], first[PAGE];
} page;
typedef struct shared {
    char *p;
    size_t n_bytes;
} shared;
typedef enum access_kind { READ, WRITE, ADD } access_kind;

static struct {
    bool on;
    dt_cuda_kernel kernel;
    page *pages[1 << 12], *last;
    uint32_t now, block_began, warp_now[MOST / WARP];
    int n_barriers, without; // of the block, from 1 on; the one that is as if it were not there
    shared shared[MOST_SHARED];
    int n_shared;
    struct { // a second write, of which the value is not known yet
        const char *p;
        size_t n;
        uint8_t old[16];
        int with;
    } second;
} m;

static void race(const char *p, int with, const char *what) {
    m.on = false;
    const char *where = "global memory";
    for (int i = 0; i < m.n_shared; i++)
        if (p >= m.shared[i].p && p < m.shared[i].p + m.shared[i].n_bytes) where = "shared memory";
    fake_breach("kernel %s: thread %d of block %lld %s in %s that %s%d touched without a barrier",
                fake_kernels[m.kernel].name, fake_fiber.thread, (long long)fake_fiber.block, what, where,
                with < 0 ? "another block, " : "thread ", with < 0 ? -with : with);
}

static page *page_of(uintptr_t at) {
    at = at / PAGE * PAGE;
    if (m.last && m.last->at == at) return m.last;
    page **list = &m.pages[at / PAGE % (sizeof m.pages / sizeof *m.pages)], *p = *list;
    while (p && p->at != at) p = p->next;
    if (!p) {
        p = dt_xcalloc(1, sizeof *p);
        p->at = at;
        p->next = *list;
        *list = p;
    }
    return m.last = p;
}

// Whether an access at that time by that thread is not in front of this one. In another block: -1.
static int disordered(uint32_t time, int thread, int in, bool is_shared) {
    const int me = fake_fiber.thread, warp = me / WARP;
    if (!time) return 0;
    if (time < m.block_began) return is_shared ? 0 : -1;
    if (time < m.now || thread == me) return 0;
    if (thread == MANY) return 1;
    const int its = thread & WARPS ? thread & ~WARPS : thread / WARP;
    return !(its == warp && (uint32_t)in < m.warp_now[warp]);
}

static void settle(void) {
    const size_t n = m.second.n;
    m.second.n = 0;
    if (n && memcmp(m.second.p, m.second.old, n)) race(m.second.p, m.second.with, "wrote");
}

static char *stacks;
static void touch(const void *at, size_t n, access_kind kind) {
    const char *p = at;
    if (!m.on || (p >= stacks && p < stacks + (size_t)MOST * STACK) ||
        (p >= (char *)&fake_fiber && p < (char *)(&fake_fiber + 1)))
        return;
    settle();
    bool is_shared = false;
    for (int i = 0; i < m.n_shared; i++) is_shared |= p >= m.shared[i].p && p < m.shared[i].p + m.shared[i].n_bytes;
    const int me = fake_fiber.thread, warp = me / WARP;
    for (size_t i = 0; i < n; i++) {
        page *g = page_of((uintptr_t)(p + i));
        const int k = (int)((uintptr_t)(p + i) % PAGE);
        cell *c = &g->cells[k];
        const int writer = c->writer & ~ATOMIC;
        int bad = disordered(c->wrote, writer, c->wrote_in, is_shared);
        if (bad && kind == READ) race(p + i, bad < 0 ? -writer : writer, "reads what");
        if (bad && !(kind == ADD && c->writer & ATOMIC) && !m.second.n) {
            if (n > sizeof m.second.old) race(p + i, bad < 0 ? -writer : writer, "writes");
            m.second.p = p, m.second.n = n, m.second.with = bad < 0 ? -writer : writer;
            for (size_t j = 0; j < n; j++) m.second.old[j] = (uint8_t)p[j];
        }
        if (kind != READ) {
            bad = disordered(c->read, c->reader, c->read_in, is_shared);
            if (bad) race(p + i, bad < 0 ? -c->reader : c->reader, "writes what was read");
            if (!g->written[k]) g->before[k] = (uint8_t)p[i];
            g->written[k] = 1;
            c->wrote = m.now;
            c->writer = (uint16_t)(me | (kind == ADD ? ATOMIC : 0));
            c->wrote_in = (uint16_t)m.warp_now[warp];
            continue;
        }
        const bool again = c->read == m.now && c->reader != me;
        const int its = c->reader & WARPS ? c->reader & ~WARPS : c->reader / WARP;
        c->reader = (uint16_t)(!again ? me : c->reader == MANY || its != warp ? MANY : WARPS | warp);
        c->read = m.now;
        c->read_in = (uint16_t)m.warp_now[warp];
    }
}

// What the first order left; of any other one, that it left the same. Then all is as before the launch, or not.
static void close_order(int order, bool undo) {
    for (size_t h = 0; h < sizeof m.pages / sizeof *m.pages; h++)
        for (page *g = m.pages[h]; g; g = g->next) {
            uint8_t *real = (uint8_t *)g->at;
            for (int k = 0; k < PAGE; k++) {
                if (!g->written[k]) continue;
                if (order == 0) g->first[k] = real[k];
                bool is_shared = false;
                for (int i = 0; i < m.n_shared; i++)
                    is_shared |=
                        (char *)real + k >= m.shared[i].p && (char *)real + k < m.shared[i].p + m.shared[i].n_bytes;
                if (!is_shared && g->first[k] != real[k])
                    fake_breach("kernel %s: the order of its threads changes what it writes (at %p)",
                                fake_kernels[m.kernel].name, (void *)(real + k));
                if (undo) real[k] = g->before[k];
            }
            memset(g->cells, 0, sizeof g->cells);
        }
}

static void drop_pages(void) {
    for (size_t h = 0; h < sizeof m.pages / sizeof *m.pages; h++)
        while (m.pages[h]) {
            page *g = m.pages[h];
            m.pages[h] = g->next;
            free(g);
        }
    m.last = NULL;
}

// ---- fibers ------------------------------------------------------------------------------------------
typedef struct fiber {
    jmp_buf at;
    ucontext_t begin;
    bool begun;
    int line;
} fiber;

static struct {
    fiber fibers[MOST];
    jmp_buf scheduler;
    int ready[MOST], n_ready, n, at_barrier, at_warp[MOST / WARP], n_done;
    uint64_t random;
    const void *args;
} f;

static uint32_t draw(uint32_t n) {
    f.random ^= f.random << 13, f.random ^= f.random >> 7, f.random ^= f.random << 17;
    return (uint32_t)((f.random >> 32) * n >> 32);
}

static void stuck(const char *what) {
    m.on = false;
    fake_breach("kernel %s, block %lld: %s", fake_kernels[m.kernel].name, (long long)fake_fiber.block, what);
}

// Leaves the fiber that runs for one that may; the caller has saved where it is.
static _Noreturn void go_on(void) {
    if (!f.n_ready) {
        if (f.n_done == f.n) longjmp(f.scheduler, 1);
        stuck("some threads wait at a barrier to which others never come");
    }
    const int i = (int)draw((uint32_t)f.n_ready), t = f.ready[i];
    f.ready[i] = f.ready[--f.n_ready];
    fake_fiber.thread = t;
    fiber *next = &f.fibers[t];
    if (next->begun) longjmp(next->at, 1);
    next->begun = true;
    setcontext(&next->begin);
    abort();
}

static void same_line(int line, int from, int to) {
    for (int t = from; t < to; t++)
        if (f.fibers[t].line != line) stuck("its threads meet at different barriers");
}

void fake_fiber_barrier(int line) {
    fiber *me = &f.fibers[fake_fiber.thread];
    me->line = line;
    settle();
    if (setjmp(me->at)) return;
    if (++f.at_barrier == f.n) {
        same_line(line, 0, f.n);
        f.at_barrier = 0;
        for (f.n_ready = 0; f.n_ready < f.n; f.n_ready++) f.ready[f.n_ready] = f.n_ready;
        if (++m.n_barriers != m.without) {
            memset(m.warp_now, 0, sizeof m.warp_now);
            m.now++;
        }
    }
    go_on();
}

void fake_fiber_warp(int line) {
    const int warp = fake_fiber.thread / WARP;
    fiber *me = &f.fibers[fake_fiber.thread];
    me->line = line;
    settle();
    if (setjmp(me->at)) return;
    if (++f.at_warp[warp] == WARP) {
        same_line(line, warp * WARP, (warp + 1) * WARP);
        f.at_warp[warp] = 0;
        for (int t = 0; t < WARP; t++) f.ready[f.n_ready++] = warp * WARP + t;
        m.warp_now[warp]++;
    }
    go_on();
}

static void run_fiber(void) {
    fake_fiber_kernels[m.kernel](f.args);
    settle();
    f.n_done++;
    go_on();
}

void fake_fiber_share(void *p, size_t n_bytes) {
    for (int i = 0; i < m.n_shared; i++)
        if (m.shared[i].p == p) return;
    if (m.n_shared == MOST_SHARED) stuck("more arrays of shared memory than are counted");
    m.shared[m.n_shared++] = (shared){p, n_bytes};
    memset(p, 0xff, n_bytes);
}

static void run_block(int64_t block) {
    fake_fiber.block = block;
    m.n_shared = m.n_barriers = 0;
    m.block_began = ++m.now;
    memset(m.warp_now, 0, sizeof m.warp_now);
    memset(f.at_warp, 0, sizeof f.at_warp);
    f.at_barrier = f.n_done = 0;
    for (int t = 0; t < f.n; t++) {
        fiber *x = &f.fibers[t];
        x->begun = false;
        f.ready[t] = t;
        char *end = stacks + (size_t)(t + 1) * STACK;
        memset(end - SAME, 0, SAME);
        getcontext(&x->begin);
        x->begin.uc_stack = (stack_t){.ss_sp = stacks + (size_t)t * STACK, .ss_size = STACK};
        x->begin.uc_link = NULL;
        makecontext(&x->begin, run_fiber, 0);
    }
    f.n_ready = f.n;
    m.on = true;
    if (!setjmp(f.scheduler)) go_on();
    m.on = false;
}

static void run_orders(dt_cuda_kernel k, const void *args, dt_cuda_grid grid, int orders, bool undo) {
    static uint64_t n_runs;
    if (!stacks)
        stacks = mmap(NULL, (size_t)MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
    if (stacks == MAP_FAILED) abort();
    const char *without = getenv("FAKE_CUDA_NO_BARRIER");
    m.without = without ? atoi(without) : 0;
    m.kernel = k;
    f.args = args;
    f.n = grid.threads;
    fake_fiber.grid = grid.blocks;
    fake_fiber.block_dim = grid.threads;
    for (int order = 0; order < orders; order++) {
        f.random = 0x9e3779b97f4a7c15u * ++n_runs;
        m.now = 0;
        const int64_t begin = draw((uint32_t)grid.blocks);
        const bool backwards = draw(2);
        for (int64_t i = 0; i < grid.blocks; i++) {
            const int64_t at = (begin + i) % grid.blocks;
            run_block(backwards ? grid.blocks - 1 - at : at);
        }
        close_order(order, undo || order + 1 < orders);
    }
    drop_pages();
}

enum { MOST_THREADS = 1 << 13 };                             // of a launch
static int n_orders, most_orders;                            // most_orders: see FAKE_CUDA_ORDERS
static int64_t n_launches[DT_K_COUNT], n_blocks[DT_K_COUNT]; // n_blocks: that have run

static void print_blocks(void) {
    for (int k = 0; k < DT_K_COUNT; k++)
        fprintf(stderr, "%8lld orders of a block: %s\n", (long long)n_blocks[k], fake_kernels[k].name);
}

bool fake_cuda_races(int orders) {
    const char *more = getenv("FAKE_CUDA_ORDERS");
    if (more && !most_orders) atexit(print_blocks);
    n_orders = orders;
    most_orders = more ? atoi(more) : 0;
    memset(n_launches, 0, sizeof n_launches);
    return true;
}

static bool turn_of(dt_cuda_kernel k, dt_cuda_grid grid) {
    const bool wanted = n_blocks[k] < most_orders; // of any size, and 2, 8, 32, … too
    if (!n_orders || (!wanted && grid.blocks * grid.threads > MOST_THREADS)) return false;
    const int64_t n = ++n_launches[k];
    return !(n & (n - 1)) && (wanted || n % 3 == 1); // 1, 4, 16, 64, …
}

// Of most_orders a launch takes up to a quarter.
static int orders_of(dt_cuda_kernel k, dt_cuda_grid grid) {
    const int64_t left = most_orders - n_blocks[k], part = left < most_orders / 4 ? left : most_orders / 4;
    const int64_t orders = (part + grid.blocks - 1) / grid.blocks;
    const int n = orders > n_orders ? (int)orders : n_orders;
    n_blocks[k] += n * grid.blocks;
    return n;
}

bool fake_fibers_take(dt_cuda_kernel k, const void *args, dt_cuda_grid grid) {
    const bool turn = turn_of(k, grid);
    if (turn) run_orders(k, args, grid, orders_of(k, grid), false);
    return turn;
}

void fake_fibers_look(dt_cuda_kernel k, const void *args, dt_cuda_grid grid) {
    if (turn_of(k, grid)) run_orders(k, args, grid, orders_of(k, grid), true);
}

// ---- what the compiler calls in front of each access -------------------------------------------------
void *fake_fiber_copy(void *to, const void *from, size_t n) {
    touch(from, n, READ);
    touch(to, n, WRITE);
    return memmove(to, from, n);
}
void fake_fiber_add(void *p, size_t n_bytes, uint64_t x) {
    touch(p, n_bytes, ADD);
    if (n_bytes == 8)
        *(uint64_t *)p += x;
    else
        *(uint32_t *)p += (uint32_t)x;
}

#define CALL(name, n, kind)                                                                                            \
    void __tsan_##name##n(void *p) {                                                                                   \
        touch(p, n, kind);                                                                                             \
    }
#define CALLS(n)                                                                                                       \
    CALL(read, n, READ)                                                                                                \
    CALL(write, n, WRITE)                                                                                              \
    CALL(unaligned_read, n, READ)                                                                                      \
    CALL(unaligned_write, n, WRITE)                                                                                    \
    CALL(volatile_read, n, READ)                                                                                       \
    CALL(volatile_write, n, WRITE)
CALLS(1) CALLS(2) CALLS(4) CALLS(8) CALLS(16) void __tsan_read_range(void *p, size_t n) {
    touch(p, n, READ);
}
void __tsan_write_range(void *p, size_t n) {
    touch(p, n, WRITE);
}
void __tsan_func_entry(void *p) {}
void __tsan_func_exit(void) {}
void __tsan_init(void) {}
#endif
