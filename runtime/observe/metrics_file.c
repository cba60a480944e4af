// metrics_file.c: an append-only file of whole records that may lose records on a failing disk, and nothing
// else.
//
// Records gather in a buffer until the sink's queue is empty (metrics_queue.c). When a write fails, the
// file is cut back to its last whole record, the buffered ones are dropped and counted, one line says so, and the next
// flush tries again: a disk that was full for a while leaves a gap, never half a record.
#include "metrics_internal.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 64 << 10 };

dt_status dt_metrics_file_open(dt_metrics_file *f, const char *path, int64_t keep_bytes) {
    struct stat info;
    *f = (dt_metrics_file){.fd = -1, .path = dt_xstrdup(path)};
    DT_TRY(dt_io_open_append(&f->fd, path));
    if (fstat(f->fd, &info) != 0) info.st_size = 0;
    if (info.st_size > keep_bytes) DT_TRY(dt_io_truncate(path, (off_t)keep_bytes));
    f->n_bytes = info.st_size < keep_bytes ? info.st_size : keep_bytes;
    f->buffer = dt_xcalloc(1, BUFFER_BYTES);
    return DT_OK;
}

static void metrics_file_drop(dt_metrics_file *f, int n_records) {
    f->n_dropped += (uint64_t)n_records;
    if (!f->failing) dt_warn("metrics are lost, training goes on: %s", dt_error_message());
    f->failing = true;
    // half a record may be there; if cutting fails as well, the next flush tries again
    (void)dt_io_truncate(f->path, (off_t)f->n_bytes);
}

static void write_or_drop(dt_metrics_file *f, const void *data, size_t n_bytes, int n_records) {
    struct stat info;
    if (f->failing && (fstat(f->fd, &info) != 0 || info.st_size != f->n_bytes) &&
        dt_io_truncate(f->path, (off_t)f->n_bytes) != DT_OK) {
        f->n_dropped += (uint64_t)n_records; // still half a record at the end
        return;
    }
    if (dt_io_write(f->fd, f->path, data, n_bytes) != DT_OK) {
        metrics_file_drop(f, n_records);
        return;
    }
    f->n_bytes += (int64_t)n_bytes;
    if (f->failing) dt_info("%s: writing again after %" PRIu64 " lost records", f->path, f->n_dropped);
    f->failing = false;
}

// Losing records is no failure of the caller, whose message stays.
static void write_out(dt_metrics_file *f, const void *data, size_t n_bytes, int n_records) {
    const dt_error_kept kept = dt_error_keep();
    write_or_drop(f, data, n_bytes, n_records);
    dt_error_restore(&kept);
}

void dt_metrics_file_flush(dt_metrics_file *f) {
    if (f->n_buffered) write_out(f, f->buffer, f->n_buffered, f->n_records);
    f->n_buffered = 0;
    f->n_records = 0;
}

void dt_metrics_file_put(dt_metrics_file *f, const void *record, size_t n_bytes) {
    if (f->n_buffered + n_bytes > BUFFER_BYTES) dt_metrics_file_flush(f);
    if (n_bytes > BUFFER_BYTES) { // a large confusion matrix
        write_out(f, record, n_bytes, 1);
        return;
    }
    memcpy(f->buffer + f->n_buffered, record, n_bytes);
    f->n_buffered += n_bytes;
    f->n_records++;
}

void dt_metrics_file_close(dt_metrics_file *f) {
    if (f->buffer) dt_metrics_file_flush(f);
    if (f->fd >= 0 && dt_io_close(f->fd, f->path) != DT_OK) dt_warn("%s", dt_error_message());
    free(f->buffer);
    free(f->path);
    *f = (dt_metrics_file){.fd = -1};
}
