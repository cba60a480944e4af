// journal.c: rows and frames. The frame goes out in one write, after the chunk's bytes; nothing is
// synced, as a frame is believed only as far as the bytes in the data file bear it out (pack_build.c).
#include "journal.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x324e524a, N_HEAD = 10 }; // "JRN2"

// ---- rows ---------------------------------------------------------------------------------------------
static void put(dt_chunk *c, const void *data, size_t n) {
    dt_buffer_append(&c->rows, data, n);
}

static void put_u16(dt_chunk *c, size_t v) {
    uint16_t x = (uint16_t)v;
    put(c, &x, sizeof x);
}

static void put_u64(dt_chunk *c, uint64_t v) {
    put(c, &v, sizeof v);
}

static dt_status put_text(dt_chunk *c, const char *s) {
    size_t n = strlen(s) + 1;
    if (n > UINT16_MAX) return dt_fail(DT_E_DATA, "a text of %zu bytes in its metadata", n - 1);
    put_u16(c, n);
    put(c, s, n);
    return DT_OK;
}

dt_status dt_row_put(dt_chunk *c, const dt_row *r, int gap_member) {
    put_u64(c, r->item);
    if (gap_member >= 0) c->gap_hash_at[0] = c->rows.n_bytes;
    put_u64(c, r->source_hash);
    put_u16(c, (size_t)r->n_members);
    put_u16(c, (size_t)r->n_columns);
    DT_TRY(put_text(c, r->suffix));
    for (int i = 0; i < r->n_members; i++) {
        DT_TRY(put_text(c, r->member[i].ext));
        put_u64(c, r->member[i].offset);
        put_u64(c, r->member[i].size);
        if (i == gap_member) c->gap_hash_at[1] = c->rows.n_bytes;
        put_u64(c, r->member[i].hash);
    }
    for (int i = 0; i < r->n_columns; i++) {
        const dt_transform_column *x = &r->column[i];
        uint8_t is_text = x->text != NULL;
        DT_TRY(put_text(c, x->name));
        put(c, &is_text, 1);
        if (is_text)
            DT_TRY(put_text(c, x->text));
        else
            put(c, &x->number, sizeof x->number);
    }
    c->n_records++;
    c->n_members += (uint32_t)r->n_members;
    return DT_OK;
}

void dt_row_set_gap_hash(dt_chunk *c, uint64_t hash) {
    for (int i = 0; i < 2; i++)
        if (c->gap_hash_at[i]) memcpy(c->rows.data + c->gap_hash_at[i], &hash, sizeof hash);
}

typedef struct reader {
    const uint8_t *p;
    size_t n, at;
    bool bad;
} reader;

static void take(reader *r, void *out, size_t n) {
    r->bad = r->bad || n > r->n - r->at;
    if (r->bad) {
        memset(out, 0, n);
        return;
    }
    memcpy(out, r->p + r->at, n);
    r->at += n;
}

static uint64_t take_u64(reader *r) {
    uint64_t v;
    take(r, &v, sizeof v);
    return v;
}

static int take_u16(reader *r) {
    uint16_t v;
    take(r, &v, sizeof v);
    return v;
}

static const char *take_text(reader *r) {
    size_t n = (size_t)take_u16(r), at = r->at;
    r->bad = r->bad || n == 0 || n > r->n - r->at || r->p[r->at + n - 1] != 0;
    if (r->bad) return "";
    r->at += n;
    return (const char *)r->p + at;
}

bool dt_row_next(const uint8_t *rows, size_t n_bytes, size_t *at, dt_row *out) {
    reader r = {rows, n_bytes, *at, false};
    if (*at >= n_bytes) return false;
    out->item = take_u64(&r);
    out->source_hash = take_u64(&r);
    out->n_members = take_u16(&r);
    out->n_columns = take_u16(&r);
    out->suffix = take_text(&r);
    if (out->n_members > DT_ROW_MAX_MEMBERS || out->n_columns > DT_TRANSFORM_MAX_COLUMNS)
        return false;
    for (int i = 0; i < out->n_members; i++) {
        dt_row_member *m = &out->member[i];
        m->ext = take_text(&r);
        m->offset = take_u64(&r);
        m->size = take_u64(&r);
        m->hash = take_u64(&r);
    }
    for (int i = 0; i < out->n_columns; i++) {
        dt_transform_column *x = &out->column[i];
        uint8_t is_text;
        *x = (dt_transform_column){.name = take_text(&r)};
        take(&r, &is_text, 1);
        if (is_text)
            x->text = take_text(&r);
        else
            take(&r, &x->number, sizeof x->number);
    }
    *at = r.at;
    return !r.bad;
}

// From `from` to `to` in the file, which are the same in memory but for the gap.
static void hash_range(dt_hash_stream *h, const dt_chunk *c, uint64_t from, uint64_t to) {
    uint64_t gap = c->has_gap && from >= c->gap_at + c->gap_bytes ? c->gap_bytes : 0;
    dt_hash_stream_update(h, dt_chunk_data(c, (size_t)(from - gap)), (size_t)(to - from));
}

uint64_t dt_row_hash_rest(const dt_chunk *c) {
    dt_hash_stream *h = dt_hash_stream_create();
    uint64_t done = 0;
    size_t at = 0;
    for (dt_row row; dt_row_next(c->rows.data, c->rows.n_bytes, &at, &row);)
        for (int i = 0; i < row.n_members; i++) {
            const dt_row_member *m = &row.member[i];
            if (!dt_row_is_large(m)) continue;
            hash_range(h, c, done, m->offset);
            done = m->offset + m->size;
        }
    hash_range(h, c, done, dt_chunk_end(c));
    uint64_t out = dt_hash_stream_digest(h);
    dt_hash_stream_destroy(h);
    return out;
}

// ---- frames -------------------------------------------------------------------------------------------
static uint64_t frame_hash(const uint64_t head[N_HEAD - 1], const void *body, size_t n) {
    dt_hash_stream *h = dt_hash_stream_create();
    dt_hash_stream_update(h, head, (N_HEAD - 1) * sizeof *head);
    dt_hash_stream_update(h, body, n);
    uint64_t out = dt_hash_stream_digest(h);
    dt_hash_stream_destroy(h);
    return out;
}

dt_status dt_journal_append(int fd, const char *path, const dt_chunk *c, uint64_t *n_bytes) {
    size_t n_body = c->rows.n_bytes + c->marks.n_bytes;
    uint64_t head[N_HEAD] = {MAGIC,           c->index,         c->base,
                             dt_chunk_end(c), c->n_records,     c->n_members,
                             c->rows.n_bytes, c->marks.n_bytes, c->hash};
    dt_buffer b = {0};
    dt_buffer_append(&b, head, sizeof head);
    dt_buffer_append(&b, c->rows.data, c->rows.n_bytes);
    dt_buffer_append(&b, c->marks.data, c->marks.n_bytes);
    head[N_HEAD - 1] = frame_hash(head, b.data + sizeof head, n_body);
    memcpy(b.data, head, sizeof head);
    dt_status st = dt_io_write(fd, path, b.data, b.n_bytes);
    *n_bytes += b.n_bytes;
    dt_buffer_fini(&b);
    return st;
}

bool dt_frame_next(const char *data, size_t n_bytes, size_t *at, dt_frame *out) {
    uint64_t head[N_HEAD];
    if (n_bytes - *at < sizeof head) return false;
    memcpy(head, data + *at, sizeof head);
    const uint8_t *body = (const uint8_t *)data + *at + sizeof head;
    size_t left = n_bytes - *at - sizeof head;
    if (head[0] != MAGIC || head[6] > left || head[7] > left - head[6]) return false;
    if (frame_hash(head, body, (size_t)(head[6] + head[7])) != head[N_HEAD - 1]) return false;
    *out = (dt_frame){.chunk = head[1],
                      .base = head[2],
                      .n_bytes = head[3],
                      .n_records = head[4],
                      .n_members = head[5],
                      .hash = head[8],
                      .rows = body,
                      .n_rows = (size_t)head[6],
                      .marks = body + head[6],
                      .n_marks = (size_t)head[7]};
    *at += sizeof head + (size_t)(head[6] + head[7]);
    return true;
}

dt_status dt_journal_read(dt_journal *j, const char *path) {
    size_t n = 0, at = 0, cap = 0;
    dt_frame x;
    *j = (dt_journal){0};
    if (!dt_io_exists(path)) return DT_OK;
    DT_TRY(dt_io_read_file(&j->data, &n, path, 0, DT_E_STORAGE));
    while (dt_frame_next(j->data, n, &at, &x)) {
        if (j->n_frames == cap)
            j->frames = dt_xrealloc(j->frames, (cap = 2 * cap + 64) * sizeof *j->frames);
        j->frames[j->n_frames++] = x;
    }
    j->n_bytes = at;
    return DT_OK;
}

void dt_journal_fini(dt_journal *j) {
    free(j->data);
    free(j->frames);
    *j = (dt_journal){0};
}
