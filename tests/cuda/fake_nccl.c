// fake_nccl.c: see fake_nccl.h.
//
// A communicator counts its collectives. Number k of rank r is the file "k.r", written under another name and renamed,
// so that every visible file is complete. A rank finishes number k when it has read all ranks' files of k, which means
// that all have finished k - 1. It then removes its own file of k - 1. Sends between two ranks have their own count; the
// receiver removes a message, and the send waits for that. A rank that waits for others tells the stream, which tries
// again later (fake_cuda_queue). The host thus continues, as it does beside a waiting kernel.
//
// A call that is BUSY has done nothing yet: at the last of its polls a thread of NCCL's queues its operations, those of a
// group as one piece of work.
//
// In front of a collective's data a file records how the rank asked for it: in which of its captures with collectives,
// and as which collective of that capture.
#include "fake_nccl.h"

#include "backend/cuda/kernels/kernel_math.h"
#include "base/core.h"
#include "fake_cuda.h"
#include "fake_memory.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RANKS = 16, MAX_OWN = 4, UNHANDLED = 1, INVALID = 4, F64 = DT_DTYPE_COUNT };
enum { BUSY_POLLS = 3, SIZES = 3, MAX_LINKS = 5 * SIZES + 2 * MAX_RANKS, LINK_BYTES = 4096 };

typedef struct how {
    int64_t capture, index; // 0, 0: not captured
} how;

typedef enum op_kind { ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST, SEND, RECV } op_kind;
typedef struct op {
    struct nccl *n;
    op_kind kind;
    char *data;
    size_t n_bytes;
    int peer; // reduce, broadcast: the root
    int type; // of a sum: dt_dtype or F64
    void *stream;
    how how;
    int left; // operations of its group behind it
} op;

typedef struct nccl {
    dt_nccl_api api;
    dt_cuda_api *cuda;
    char folder[DT_NCCL_ID_BYTES];
    int rank, world_size;
    int64_t n_done;    // collectives
    size_t n_gathered; // bytes of all-gathers and broadcasts
    int n_before;      // communicators that FAKE_NCCL_DIR has seen
    int64_t n_sent[MAX_RANKS], n_received[MAX_RANKS];
    const void *waits; // the operation that has sent its part and waits for the others
    const op *group;   // under way, its operation
    bool inited, aborted, finalized;
    int busy;     // how often async_error is still busy
    bool grouped; // between group_start and group_end
    op *ops;      // of the call that is not finished
    int n_ops, error;
    void *links[MAX_LINKS]; // memory that was taken at the first operation of a kind and size, or with a peer
    uint64_t capture;       // the machine's number of the last one with a collective
    how last;               // in it
    struct {
        void *p; // memory of NCCL's
        bool registered;
    } own[MAX_OWN];
} nccl;

static nccl *of(const dt_nccl_api *a) {
    return a->self;
}

// NCCL's error where this call is told to fail, or the device is lost.
static int failure(nccl *n, const char *call, size_t n_bytes) {
    const int e = fake_cuda_note(n->cuda, call, n_bytes);
    return e < DT_NCCL_BUSY ? e : UNHANDLED;
}

// ---- files -----------------------------------------------------------------------------------------
static void write_file(const char *path, how asked, const void *data, size_t n_bytes) {
    char part[256];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *f = fopen(part, "wb");
    if (!f || fwrite(&asked, sizeof asked, 1, f) != 1 || fwrite(data, 1, n_bytes, f) != n_bytes || fclose(f) ||
        rename(part, path))
        fake_breach("%s cannot be written", path);
}

static bool is_there(const char *path) {
    return access(path, F_OK) == 0;
}

static void read_file(const char *path, how asked, void *data, size_t n_bytes) {
    struct stat st;
    how there;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) || fread(&there, sizeof there, 1, f) != 1) fake_breach("%s cannot be read", path);
    if ((size_t)st.st_size != n_bytes + sizeof there)
        fake_breach("ranks do not agree: %zu bytes here, %lld there", n_bytes,
                    (long long)st.st_size - (long long)sizeof there);
    if (there.capture != asked.capture || there.index != asked.index)
        fake_breach("ranks do not agree: a collective is number %lld of capture %lld here and "
                    "number %lld of capture %lld there (0: not captured)",
                    (long long)asked.index, (long long)asked.capture, (long long)there.index, (long long)there.capture);
    if (fread(data, 1, n_bytes, f) != n_bytes) fake_breach("%s cannot be read", path);
    fclose(f);
}

static void name_collective(const nccl *n, int64_t number, int rank, char path[256]) {
    snprintf(path, 256, "%s/%lld.%d", n->folder, (long long)number, rank);
}

// ---- work ------------------------------------------------------------------------------------------
static bool all_are_there(const nccl *n) {
    char path[256];
    for (int r = 0; r < n->world_size; r++) {
        name_collective(n, n->n_done, r, path);
        if (!is_there(path)) return false;
    }
    return true;
}

// Whether sums are made in switches (NVLS): FAKE_NCCL_SWITCH says that there are some.
static bool in_switches(void) {
    const char *algo = getenv("NCCL_ALGO");
    return getenv("FAKE_NCCL_SWITCH") && !(algo && *algo == '^' && strstr(algo, "NVLS,") && strstr(algo, "NVLSTree"));
}

// In an order other than that of ranks, the same on all ranks, and another one where it is captured: NCCL promises the
// same bits for neither. Switches add in an order that differs from one communicator to the next.
static void take_sum(nccl *n, how asked, void *data, int type, size_t n_bytes) {
    char path[256];
    void *x = malloc(n_bytes + 1);
    const int64_t count = (int64_t)(n_bytes / (type == F64 ? 8 : dt_dtype_size((dt_dtype)type)));
    const int first = (asked.capture ? 1 : 2) + (in_switches() ? n->n_before : 0);
    for (int i = 0; i < n->world_size; i++) {
        name_collective(n, n->n_done, (i + first) % n->world_size, path);
        read_file(path, asked, x, n_bytes);
        for (int64_t k = 0; k < count; k++)
            if (type == F64)
                ((double *)data)[k] = ((double *)x)[k] + (i ? ((double *)data)[k] : 0);
            else
                dt_put(data, type, k, dt_get(x, type, k) + (i ? dt_get(data, type, k) : 0));
    }
    if (getenv("FAKE_NCCL_WRONG") && n_bytes) dt_put(data, type, 0, dt_get(data, type, 0) + 1);
    free(x);
}

// Terms of sums that others have are NaN for who reads them, but for zeros, which gaps between tensors keep.
static void spoil(const op *o, char *at, size_t n_bytes) {
    const int64_t count = (int64_t)(n_bytes / dt_dtype_size((dt_dtype)o->type));
    for (int64_t k = 0; k < count; k++)
        if (dt_get(at, o->type, k) != 0) dt_put(at, o->type, k, NAN);
}

static void take_part(const op *o) {
    const nccl *n = o->n;
    const size_t part = o->n_bytes / (size_t)n->world_size;
    char path[256];
    if (o->kind == ALL_REDUCE || o->kind == REDUCE_SCATTER || o->kind == REDUCE)
        take_sum(o->n, o->how, o->data, o->type, o->n_bytes);
    if (o->kind == REDUCE && o->peer != n->rank) spoil(o, o->data, o->n_bytes);
    for (int r = 0; r < n->world_size; r++) {
        char *at = o->data + part * (size_t)r;
        name_collective(n, n->n_done, r, path);
        if (o->kind == REDUCE_SCATTER && r != n->rank) spoil(o, at, part);
        if (o->kind == ALL_GATHER) read_file(path, o->how, at, part);
        if (o->kind == BROADCAST && r == o->peer) read_file(path, o->how, o->data, o->n_bytes);
    }
}

static bool run_collective(const op *o) {
    nccl *n = o->n;
    char path[256];
    const bool gathers = o->kind == ALL_GATHER, gives = o->kind != BROADCAST || o->peer == n->rank;
    const size_t part = o->n_bytes / (size_t)n->world_size;
    if (!n->waits) {
        name_collective(n, n->n_done, n->rank, path);
        write_file(path, o->how, o->data + (gathers ? part * (size_t)n->rank : 0),
                   gathers ? part
                   : gives ? o->n_bytes
                           : 0);
        n->waits = o;
    }
    if (n->waits != o) fake_breach("a collective begins while another is under way");
    if (!all_are_there(n)) return false;
    take_part(o);
    if (gathers || o->kind == BROADCAST) n->n_gathered += o->n_bytes;
    name_collective(n, n->n_done - 1, n->rank, path);
    unlink(path);
    n->n_done++;
    n->waits = NULL;
    return true;
}

static bool run_op(const op *o) {
    nccl *n = o->n;
    char path[256];
    const bool sends = o->kind == SEND;
    if (!sends && o->kind != RECV) return run_collective(o);
    int64_t *number = sends ? &n->n_sent[o->peer] : &n->n_received[o->peer];
    snprintf(path, sizeof path, "%s/s%lld.%d.%d", n->folder, (long long)*number, sends ? n->rank : o->peer,
             sends ? o->peer : n->rank);
    if (sends) {
        if (n->waits != o) write_file(path, o->how, o->data, o->n_bytes);
        n->waits = is_there(path) ? o : NULL;
        if (n->waits) return false;
    } else {
        if (!is_there(path)) return false;
        read_file(path, o->how, o->data, o->n_bytes);
        unlink(path);
    }
    ++*number;
    return true;
}

// The operations of one call.
static bool run_group(const void *arg) {
    const op *o = arg;
    nccl *n = o->n;
    if (n->aborted) return true; // the kernel has ended
    if (n->group && (n->group < o || n->group > o + o->left)) fake_breach("a call begins while another is under way");
    if (!n->group) n->group = o;
    while (n->group) {
        if (!run_op(n->group)) return false;
        n->group = n->group->left ? n->group + 1 : NULL;
    }
    return true;
}

static how note_capture(nccl *n, void *stream) {
    const uint64_t capture = fake_cuda_capture(n->cuda, stream);
    if (!capture) return (how){0};
    if (capture != n->capture) n->last = (how){n->last.capture + 1, 0};
    n->capture = capture;
    n->last.index++;
    return n->last;
}

// FAKE_NCCL_REFUSES: a rank whose library captures nothing; "all" is every rank.
static bool refuses(const nccl *n, void *stream) {
    const char *who = getenv("FAKE_NCCL_REFUSES");
    return who && (strcmp(who, "all") == 0 || atoi(who) == n->rank) && fake_cuda_capture(n->cuda, stream);
}

// What NCCL takes at the first operation of a kind and size, and for each peer of sends and receives: not in a capture.
static int connect(nccl *n, const op *o) {
    const int size = o->n_bytes < 1 << 16 ? 0 : o->n_bytes < 1 << 20 ? 1 : 2;
    const int i = o->kind < SEND ? o->kind * SIZES + size : 5 * SIZES + (o->kind - SEND) * MAX_RANKS + o->peer;
    if (n->links[i]) return DT_NCCL_OK;
    if (o->how.capture) fake_breach("the first operation of kind %d, of %zu bytes, is captured", o->kind, o->n_bytes);
    const char *bytes = getenv("FAKE_NCCL_LINK");
    return n->cuda->alloc(n->cuda, &n->links[i], bytes ? (size_t)atoll(bytes) : LINK_BYTES) ? UNHANDLED : DT_NCCL_OK;
}

// The end of a call: NCCL's own thread, which has chosen the device, queues all its operations or none.
static void *complete(void *arg) {
    nccl *n = arg;
    op *o = n->ops;
    fake_cuda_move(n->cuda);
    for (int i = 0; i < n->n_ops && !n->error; i++) {
        o[i].how = note_capture(n, o[i].stream);
        o[i].left = n->n_ops - 1 - i;
        n->error = connect(n, &o[i]);
    }
    if (n->n_ops && !n->error)
        n->error = fake_cuda_queue(n->cuda, "group", run_group, o, (size_t)n->n_ops * sizeof *o, 0, o->stream);
    n->n_ops = 0;
    return NULL;
}

static void check_idle(const nccl *n, const char *call) {
    if (n->busy) fake_breach("%s while another call is under way", call);
}

static int begin(nccl *n) {
    n->busy = BUSY_POLLS;
    return DT_NCCL_BUSY; // async_error says when it is finished
}

static int queue(const dt_nccl_api *a, op_kind kind, const void *data, size_t n_bytes, int peer, int type,
                 void *stream) {
    nccl *n = of(a);
    static const char *const names[] = {"all_reduce", "reduce_scatter", "reduce", "all_gather",
                                        "broadcast",  "send",           "recv"};
    check_idle(n, names[kind]);
    int e = n->aborted || peer >= n->world_size || refuses(n, stream) ? INVALID : 0;
    if (!e) fake_cuda_check_device(n->cuda, data, n_bytes);
    if (!e) e = failure(n, names[kind], n_bytes);
    if (e) return n->error = e;
    if (n->grouped && n->n_ops && n->ops->stream != stream) fake_breach("a group is queued on two streams");
    n->ops = dt_xrealloc(n->ops, (size_t)(n->n_ops + 1) * sizeof *n->ops);
    n->ops[n->n_ops++] = (op){
        .n = n, .kind = kind, .data = (char *)data, .n_bytes = n_bytes, .peer = peer, .type = type, .stream = stream};
    return n->grouped ? DT_NCCL_OK : begin(n);
}

// ---- the table -------------------------------------------------------------------------------------
static const char *error_text(const dt_nccl_api *a, void *comm, int error) {
    static const char *const texts[] = {
        "no error",         "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",        "remote process exited"};
    (void)a, (void)comm;
    return error < DT_NCCL_BUSY ? texts[error] : "not finished";
}

static int unique_id(const dt_nccl_api *a, void *id) {
    char *folder = id;
    const int e = failure(of(a), "unique_id", 0);
    if (e) return e;
    memset(id, 0, DT_NCCL_ID_BYTES);
    const char *in = getenv("FAKE_NCCL_DIR"); // removed by whoever set it: ranks leave at different times
    int n_before = 0;
    DIR *d = opendir(in ? in : "/tmp");
    for (const struct dirent *x; d && (x = readdir(d)); n_before += strncmp(x->d_name, "nccl-", 5) == 0) {
    }
    if (d) closedir(d);
    snprintf(folder, DT_NCCL_ID_BYTES, "%s/nccl-%d-XXXXXX", in ? in : "/tmp", n_before);
    return mkdtemp(folder) ? DT_NCCL_OK : INVALID;
}

static int init(const dt_nccl_api *a, void **comm, int world_size, const void *id, int rank) {
    nccl *n = of(a);
    char path[256];
    const int e = failure(n, "init", 0);
    if (e) return e;
    if ((n->inited && !n->aborted) || world_size > MAX_RANKS) return INVALID;
    memcpy(n->folder, id, sizeof n->folder);
    n->n_before = atoi(strstr(n->folder, "/nccl-") + 6);
    n->rank = rank;
    n->world_size = world_size;
    n->inited = true;
    n->aborted = n->finalized = false;
    n->n_done = 0;
    n->n_ops = n->error = 0;
    n->waits = n->group = NULL;
    memset(n->n_sent, 0, sizeof n->n_sent);
    memset(n->n_received, 0, sizeof n->n_received);
    *comm = n;
    snprintf(path, sizeof path, "%s/here.%d", n->folder, rank);
    write_file(path, (how){0}, "", 0);
    return begin(n);
}

static int async_error(const dt_nccl_api *a, void *comm, int *state) {
    nccl *n = of(a);
    pthread_t thread;
    char path[256];
    if (n->grouped) fake_breach("a group is not ended");
    *state = failure(n, "async_error", 0);
    if (*state) return DT_NCCL_OK;
    if (n->busy && !--n->busy) {
        if (pthread_create(&thread, NULL, complete, n) || pthread_join(thread, NULL)) abort();
        fake_cuda_move(n->cuda);
    }
    *state = n->busy ? DT_NCCL_BUSY : n->error;
    for (int r = 0; r < n->world_size && !n->n_done && !*state; r++) { // until all have come
        snprintf(path, sizeof path, "%s/here.%d", n->folder, r);
        if (!is_there(path)) *state = DT_NCCL_BUSY;
    }
    return DT_NCCL_OK;
}

static int all_reduce(const dt_nccl_api *a, void *comm, void *data, int64_t count, dt_dtype type, void *stream) {
    return queue(a, ALL_REDUCE, data, (size_t)count * dt_dtype_size(type), -1, type, stream);
}
static int all_reduce_f64(const dt_nccl_api *a, void *comm, double *data, int64_t count, void *stream) {
    return queue(a, ALL_REDUCE, data, (size_t)count * sizeof *data, -1, F64, stream);
}
static int reduce_scatter(const dt_nccl_api *a, void *comm, void *data, void *own, int64_t count, dt_dtype type,
                          void *stream) {
    const size_t part = (size_t)count * dt_dtype_size(type);
    if ((char *)own != (char *)data + part * (size_t)of(a)->rank) fake_breach("it is not in place");
    return queue(a, REDUCE_SCATTER, data, part * (size_t)of(a)->world_size, -1, type, stream);
}
static int reduce(const dt_nccl_api *a, void *comm, void *data, int64_t count, dt_dtype type, int root, void *stream) {
    return queue(a, REDUCE, data, (size_t)count * dt_dtype_size(type), root, type, stream);
}
static int all_gather(const dt_nccl_api *a, void *comm, void *data, const void *own, size_t part, void *stream) {
    if ((const char *)own != (char *)data + part * (size_t)of(a)->rank) fake_breach("it is not in place");
    return queue(a, ALL_GATHER, data, part * (size_t)of(a)->world_size, -1, DT_U8, stream);
}
static int group_start(const dt_nccl_api *a) {
    const int e = failure(of(a), "group_start", 0);
    check_idle(of(a), "group_start");
    of(a)->grouped = !e;
    return e;
}
static int group_end(const dt_nccl_api *a) {
    nccl *n = of(a);
    const int e = failure(n, "group_end", 0);
    if (!n->grouped) return INVALID;
    n->grouped = false;
    if (e) n->error = e;
    return n->error ? n->error : begin(n);
}
static int broadcast(const dt_nccl_api *a, void *comm, void *data, size_t n_bytes, int root, void *stream) {
    return queue(a, BROADCAST, data, n_bytes, root, DT_U8, stream);
}
static int send(const dt_nccl_api *a, void *comm, const float *data, int64_t count, int to, void *stream) {
    return queue(a, SEND, data, (size_t)count * sizeof *data, to, DT_F32, stream);
}
static int recv(const dt_nccl_api *a, void *comm, float *data, int64_t count, int from, void *stream) {
    return queue(a, RECV, data, (size_t)count * sizeof *data, from, DT_F32, stream);
}

// The index of the block at p; MAX_OWN if there is none.
static int find_custom(const nccl *n, const void *p) {
    int i = 0;
    while (i < MAX_OWN && n->own[i].p != p) i++;
    return i;
}

static int mem_alloc(const dt_nccl_api *a, void **p, size_t n_bytes) {
    nccl *n = of(a);
    const int i = find_custom(n, NULL);
    const int e = failure(n, "mem_alloc", n_bytes);
    if (e || i == MAX_OWN) return e ? e : INVALID;
    if (n->cuda->alloc(n->cuda, p, n_bytes)) return INVALID;
    n->own[i].p = *p;
    return DT_NCCL_OK;
}

static int mem_free(const dt_nccl_api *a, void *p) {
    nccl *n = of(a);
    const int i = find_custom(n, p);
    const int e = failure(n, "mem_free", 0);
    if (e) return e;
    if (i == MAX_OWN || n->own[i].registered) fake_breach("memory of NCCL's is given back in use");
    n->own[i].p = NULL;
    return n->cuda->free(n->cuda, p) ? INVALID : DT_NCCL_OK;
}

static int comm_register(const dt_nccl_api *a, void *comm, void *p, size_t n_bytes, void **handle) {
    nccl *n = of(a);
    const int i = find_custom(n, p);
    const int e = failure(n, "comm_register", n_bytes);
    if (e) return e;
    if (!p || i == MAX_OWN) return INVALID;
    check_idle(n, "comm_register");
    n->own[i].registered = true;
    *handle = &n->own[i];
    return begin(n);
}

static int comm_deregister(const dt_nccl_api *a, void *comm, void *handle) {
    nccl *n = of(a);
    const int e = failure(n, "comm_deregister", 0);
    check_idle(n, "comm_deregister");
    for (int i = 0; i < MAX_OWN; i++) {
        if (handle != &n->own[i] || !n->own[i].registered) continue;
        n->own[i].registered = false;
        return e;
    }
    fake_breach("no memory is registered");
}

static int finalize(const dt_nccl_api *a, void *comm) {
    const int e = failure(of(a), "finalize", 0);
    check_idle(of(a), "finalize");
    of(a)->finalized = true;
    if (getenv("FAKE_NCCL_BYTES")) fprintf(stderr, "NCCL gathered %zu bytes\n", of(a)->n_gathered);
    return e ? e : begin(of(a));
}

// The communicator is gone, also where that fails.
static int leave(const dt_nccl_api *a, void *comm, const char *call) {
    const int e = failure(of(a), call, 0);
    const int n = fake_cuda_graphs_with(of(a)->cuda, run_group);
    if (n) fake_breach("%d graphs hold collectives of a communicator that goes: it waits for them", n);
    if (comm != of(a) || of(a)->aborted) fake_breach("a communicator goes twice");
    of(a)->aborted = true;
    of(a)->busy = of(a)->n_ops = 0;
    for (int i = 0; i < MAX_OWN; i++) of(a)->own[i].registered = false;
    for (int i = 0; i < MAX_LINKS; i++) {
        if (of(a)->links[i]) of(a)->cuda->free(of(a)->cuda, of(a)->links[i]);
        of(a)->links[i] = NULL;
    }
    return e;
}
static int destroy(const dt_nccl_api *a, void *comm) {
    if (of(a)->busy || !of(a)->finalized) fake_breach("a communicator is destroyed that is not finalized");
    return leave(a, comm, "destroy");
}
static int abort_comm(const dt_nccl_api *a, void *comm) {
    return leave(a, comm, "abort");
}

dt_nccl_api *fake_nccl_create(dt_cuda_api *cuda, bool old) {
    nccl *n = dt_xcalloc(1, sizeof *n);
    n->api = (dt_nccl_api){.self = n,
                           .error_text = error_text,
                           .unique_id = unique_id,
                           .init = init,
                           .async_error = async_error,
                           .all_reduce = all_reduce,
                           .all_reduce_f64 = all_reduce_f64,
                           .reduce_scatter = reduce_scatter,
                           .reduce = reduce,
                           .all_gather = all_gather,
                           .group_start = group_start,
                           .group_end = group_end,
                           .broadcast = broadcast,
                           .send = send,
                           .recv = recv,
                           .finalize = finalize,
                           .destroy = destroy,
                           .abort = abort_comm};
    if (!old) {
        n->api.mem_alloc = mem_alloc;
        n->api.mem_free = mem_free;
        n->api.comm_register = comm_register;
        n->api.comm_deregister = comm_deregister;
    }
    n->cuda = cuda;
    return &n->api;
}

void fake_nccl_destroy(const dt_nccl_api *a) {
    free(of(a)->ops);
    free(of(a));
}
