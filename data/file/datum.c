// datum.c: the wire format of one message.
//
// The message has seven fields, so this reader of tags and lengths is shorter than a description for a library.
// It allocates nothing and does not touch the pixels: listing an LMDB of raw images reads only the first and
// last bytes of each value. A field that Datum does not have is refused, so values of another
// format are not taken for a Datum.
// Format: caffe.proto (message Datum), Protocol Buffers "Encoding".
#include "datum.h"
#include "file.h"

typedef struct cursor {
    const dt_blob *b;
    uint64_t at, end;
    dt_peek peek;
} cursor;

static dt_status no_datum(const cursor *c, const char *what) {
    return dt_fail(DT_E_DATA, "%s: offset %llu: not a Caffe Datum: %s", c->b->path, (unsigned long long)c->at, what);
}

static dt_status next_byte(cursor *c, uint8_t *out) {
    if (c->at >= c->end) return no_datum(c, "it is cut");
    return dt_peek_read(&c->peek, c->at++, out, 1);
}

static dt_status varint(cursor *c, uint64_t *out) {
    uint64_t v = 0;
    uint8_t byte = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        DT_TRY(next_byte(c, &byte));
        v |= (uint64_t)(byte & 0x7f) << shift; // base 128, the lowest seven bits first
        if (!(byte & 0x80)) {
            *out = v;
            return DT_OK;
        }
    }
    return no_datum(c, "a number of more than 64 bits");
}

static dt_status skip(cursor *c, uint64_t n) {
    // the message states n: compared without a sum, which may wrap
    if (n > c->end - c->at) return no_datum(c, "it is cut");
    c->at += n;
    return DT_OK;
}

static dt_status datum_read_int(cursor *c, uint64_t field, dt_datum *d) {
    uint64_t v;
    DT_TRY(varint(c, &v));
    // field numbers of caffe.proto's Datum
    switch (field) {
    case 1:
        d->channels = (int64_t)v;
        return DT_OK;
    case 2:
        d->height = (int64_t)v;
        return DT_OK;
    case 3:
        d->width = (int64_t)v;
        return DT_OK;
    case 5:
        d->label = (int64_t)v;
        d->has_label = true;
        return DT_OK;
    case 7:
        d->encoded = v != 0;
        return DT_OK;
    default:
        return no_datum(c, "a field that it does not have");
    }
}

static dt_status datum_read_field(cursor *c, dt_datum *d) {
    uint64_t tag, n, tag_at = c->at;
    DT_TRY(varint(c, &tag));
    // the wire type: 0 a varint, 2 bytes with a length, 5 four bytes
    switch (tag & 7) {
    case 0:
        return datum_read_int(c, tag >> 3, d);
    case 2:
        DT_TRY(varint(c, &n));
        if (tag >> 3 == 4) { // data
            d->data_at = c->at;
            d->n_data = n;
        } else if (tag >> 3 == 6 && n % 4 == 0 && d->n_floats == 0) { // float_data, packed
            d->float_at = c->at;
            d->n_floats = n / 4;
            d->packed = true;
        } else {
            return no_datum(c, "a field that it does not have");
        }
        return skip(c, n);
    case 5:
        if (tag != (6 << 3 | 5)) return no_datum(c, "a field that it does not have"); // float_data, each with its tag
        if (d->n_floats == 0) d->float_at = tag_at;                                   // of the first tag
        // a tag of one byte and four bytes each, without a gap
        if (tag_at != d->float_at + 5 * d->n_floats || d->packed) return no_datum(c, "floats in several places");
        d->n_floats++;
        return skip(c, 4);
    default:
        return no_datum(c, "a field that it does not have");
    }
}

dt_status dt_datum_read(const dt_blob *b, uint64_t at, uint64_t n_bytes, dt_datum *out) {
    cursor c;
    c.b = b;
    c.at = at;
    c.end = at + n_bytes;
    dt_peek_init(&c.peek, b);
    *out = (dt_datum){.channels = 0};
    if (n_bytes == 0 || at > b->n_bytes || n_bytes > b->n_bytes - at) return no_datum(&c, "it is cut");
    while (c.at < c.end) DT_TRY(datum_read_field(&c, out));
    if (out->n_data == 0 && out->n_floats == 0) return no_datum(&c, "it holds no data");
    if (out->encoded) return DT_OK; // an image file: its own header states its size
    // products of what the message states stay below 64 bits
    uint64_t limit = UINT64_C(1) << 40, have = out->n_data ? out->n_data : out->n_floats;
    if (out->channels < 1 || out->height < 1 || out->width < 1 || out->channels > 65536 || out->height > 1 << 20 ||
        out->width > 1 << 20 || (uint64_t)out->channels * (uint64_t)out->height > limit / (uint64_t)out->width ||
        (uint64_t)(out->channels * out->height * out->width) != have)
        return no_datum(&c, "its data are not channels x height x width");
    return DT_OK;
}
