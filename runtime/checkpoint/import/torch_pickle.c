// torch_pickle.c: the stack machine. Values are nodes in an arena; a memo holds those that are named again. It follows
// the opcodes of pickle protocol 2, which torch.save writes, and of 3 to 5, which it can write (Python's
// Lib/pickletools.py describes them).
//
// A hostile file can make neither large memory (a node an opcode at most, and the file is limited) nor endless loops:
// dicts that contain themselves end at a depth, and what is visited is counted.
#include "torch_pickle.h"

#include "base/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// limits against files made to exhaust memory or time
enum { MAX_DEPTH = 16, MAX_VISITS = 1 << 17, MAX_ITEMS = 1 << 26, MAX_TEXT = 1024 };

typedef enum node_kind { NONE, INT, TEXT, GLOBAL, TUPLE, LIST, DICT, STORAGE, TENSOR } node_kind;
// by node_kind, for messages
static const char *const kind_names[] = {"None or a number", "an integer", "text",      "a global", "a tuple",
                                         "a list",           "a dict",     "a storage", "a tensor"};

// What a global does when it is called.
typedef enum action {
    ACT_STORAGE_TYPE, // it is no function but names an element type
    ACT_DICT,
    ACT_TENSOR,
    ACT_PARAMETER,
    ACT_SIZE,
} action;

typedef struct global {
    const char *name;
    action action;
    const char *type; // of a storage
} global;

// the only callables: no other global is looked up
static const global globals[] = {
    {"collections.OrderedDict", ACT_DICT},
    {"torch._utils._rebuild_tensor", ACT_TENSOR},
    {"torch._utils._rebuild_tensor_v2", ACT_TENSOR},
    {"torch._utils._rebuild_parameter", ACT_PARAMETER},
    {"torch.Size", ACT_SIZE},
    {"torch.FloatStorage", ACT_STORAGE_TYPE, "F32"},
    {"torch.DoubleStorage", ACT_STORAGE_TYPE, "F64"},
    {"torch.HalfStorage", ACT_STORAGE_TYPE, "F16"},
    {"torch.BFloat16Storage", ACT_STORAGE_TYPE, "BF16"},
    {"torch.LongStorage", ACT_STORAGE_TYPE, "I64"},
    {"torch.IntStorage", ACT_STORAGE_TYPE, "I32"},
    {"torch.ShortStorage", ACT_STORAGE_TYPE, "I16"},
    {"torch.CharStorage", ACT_STORAGE_TYPE, "I8"},
    {"torch.ByteStorage", ACT_STORAGE_TYPE, "U8"},
    {"torch.BoolStorage", ACT_STORAGE_TYPE, "BOOL"},
};

// Opcodes that are refused, so that the message can name them.
static const struct {
    uint8_t code;
    const char *name;
} refused[] = {{'0', "POP"},
               {'1', "POP_MARK"},
               {'2', "DUP"},
               {'F', "FLOAT"},
               {'I', "INT"},
               {'L', "LONG"},
               {'P', "PERSID"},
               {'S', "STRING"},
               {'T', "BINSTRING"},
               {'U', "SHORT_BINSTRING"},
               {'V', "UNICODE"},
               {'B', "BINBYTES"},
               {'C', "SHORT_BINBYTES"},
               {'d', "DICT"},
               {'g', "GET"},
               {'i', "INST"},
               {'l', "LIST"},
               {'o', "OBJ"},
               {'p', "PUT"},
               {0x81, "NEWOBJ"},
               {0x82, "EXT1"},
               {0x83, "EXT2"},
               {0x84, "EXT4"},
               {0x8b, "LONG4"},
               {0x8d, "BINUNICODE8"},
               {0x8e, "BINBYTES8"},
               {0x8f, "EMPTY_SET"},
               {0x90, "ADDITEMS"},
               {0x91, "FROZENSET"},
               {0x92, "NEWOBJ_EX"},
               {0x96, "BYTEARRAY8"}};

typedef struct node {
    node_kind kind;
    int64_t number;      // INT
    const char *text;    // TEXT; of a STORAGE its key
    const global *call;  // GLOBAL; of a STORAGE its element type
    struct node **items; // TUPLE, LIST, DICT (keys and values in turn); heap, listed in machine.owned
    size_t n_items;
    dt_torch_tensor *tensor; // TENSOR; of a STORAGE with storage and storage_elements only
} node;

typedef struct machine {
    dt_arena *arena;         // the result
    dt_arena nodes;          // freed as a whole at the end
    const uint8_t *at, *end; // the next opcode; one past the last byte
    const char *where;       // file, for messages
    node **stack;
    size_t n_stack;
    size_t *marks; // positions in the stack
    size_t n_marks;
    node **memo; // memo: nodes by number, owned by the arena
    size_t n_memo;
    node **owned; // nodes with items
    size_t n_owned;
} machine;

static dt_status torch_pickle_bad(const machine *m, const char *what) {
    // "damaged": the bytes cannot come from a pickler
    return dt_fail(DT_E_CKPT, "%s: damaged pickle: %s", m->where, what);
}

static dt_status torch_pickle_refuse(const machine *m, const char *kind, const char *name) {
    // "refused": valid pickle, but more than tensors
    return dt_fail(DT_E_CKPT,
                   "%s: %s %.200s is refused: only tensors are read, and nothing of a file is run. "
                   "In Python, torch.save(model.state_dict(), 'weights.pth') saves tensors alone",
                   m->where, kind, name);
}

// ---- reading and the stack -------------------------------------------------------------------------
static const uint8_t *torch_pickle_take(machine *m, size_t n_bytes) {
    if ((size_t)(m->end - m->at) < n_bytes) return NULL; // no pointer past `end` is ever formed
    m->at += n_bytes;
    return m->at - n_bytes;
}

static node *torch_pickle_make(machine *m, node_kind kind) {
    node *n = dt_arena_alloc(&m->nodes, sizeof *n); // zeroed by the arena
    n->kind = kind;
    return n;
}

static dt_status torch_pickle_push(machine *m, node *n) {
    m->stack = dt_xgrow(m->stack, m->n_stack, sizeof *m->stack); // cannot fail; a status for DT_TRY chains
    m->stack[m->n_stack++] = n;
    return DT_OK;
}

static dt_status push_new(machine *m, node_kind kind) {
    return torch_pickle_push(m, torch_pickle_make(m, kind));
}

static dt_status push_int(machine *m, int64_t number) {
    node *n = torch_pickle_make(m, INT);
    n->number = number;
    return torch_pickle_push(m, n);
}

// NULL where the stack is empty down to the last mark.
static node *pop(machine *m) {
    size_t floor = m->n_marks ? m->marks[m->n_marks - 1] : 0; // a mark protects what lies below
    return m->n_stack > floor ? m->stack[--m->n_stack] : NULL;
}

static node *top(machine *m) {
    size_t floor = m->n_marks ? m->marks[m->n_marks - 1] : 0;
    return m->n_stack > floor ? m->stack[m->n_stack - 1] : NULL;
}

static void torch_pickle_add_item(machine *m, node *to, node *item) {
    if (!to->items) {
        m->owned = dt_xgrow(m->owned, m->n_owned, sizeof *m->owned); // freed by dt_torch_pickle_read
        m->owned[m->n_owned++] = to;
    }
    to->items = dt_xgrow(to->items, to->n_items, sizeof *to->items); // doubles; a list may have a million items
    to->items[to->n_items++] = item;
}

// The items above the last mark, in their order; the mark goes.
static dt_status pop_mark(machine *m, node ***items, size_t *n) {
    if (!m->n_marks) return torch_pickle_bad(m, "no mark");
    size_t floor = m->marks[--m->n_marks];
    *items = m->stack + floor; // stays valid: the stack does not shrink its memory
    *n = m->n_stack - floor;
    m->n_stack = floor;
    return DT_OK;
}

static dt_status add_items(machine *m, node_kind kind, bool marked) {
    node **items = NULL, *one[2];
    size_t n = kind == DICT ? 2 : 1; // key and value
    if (marked) {
        DT_TRY(pop_mark(m, &items, &n));
    } else {
        for (size_t i = n; i-- > 0;) // popped in reverse order
            if (!(one[i] = pop(m))) return torch_pickle_bad(m, "the stack is empty");
        items = one;
    }
    node *to = top(m);
    // an odd number: a key without value
    if (!to || to->kind != kind || (kind == DICT && n % 2)) return torch_pickle_bad(m, "items of no list or dict");
    for (size_t i = 0; i < n; i++) torch_pickle_add_item(m, to, items[i]);
    return DT_OK;
}

static dt_status push_tuple(machine *m, int n) { // -1: down to the mark
    node **items = NULL, *tuple = torch_pickle_make(m, TUPLE);
    size_t count = (size_t)n;
    if (n < 0) {
        DT_TRY(pop_mark(m, &items, &count));
    } else {
        // checked before the subtraction from n_stack
        size_t floor = m->n_marks ? m->marks[m->n_marks - 1] : 0;
        if (m->n_stack - floor < count) return torch_pickle_bad(m, "the stack is empty"); // n_stack >= floor always
        m->n_stack -= count;
        items = m->stack + m->n_stack;
    }
    for (size_t i = 0; i < count; i++) torch_pickle_add_item(m, tuple, items[i]);
    return torch_pickle_push(m, tuple);
}

// ---- numbers, texts, globals, memo -----------------------------------------------------------------
static dt_status push_number(machine *m, size_t n_bytes) {
    const uint8_t *p = torch_pickle_take(m, n_bytes);
    if (!p) return torch_pickle_bad(m, "cut off");
    // BININT is signed; BININT1 and BININT2 are not
    return push_int(m, n_bytes == 1 ? p[0] : n_bytes == 2 ? dt_le16(p) : (int32_t)dt_le32(p));
}

static dt_status push_long(machine *m) {
    // LONG1: a length byte, then little-endian two's complement
    const uint8_t *length = torch_pickle_take(m, 1), *p = length ? torch_pickle_take(m, *length) : NULL;
    uint64_t v = 0;
    if (!p) return torch_pickle_bad(m, "cut off");
    if (*length > 8) return torch_pickle_bad(m, "an integer of more than 8 bytes");
    for (int i = 0; i < *length; i++) v |= (uint64_t)p[i] << (8 * i);
    // sign extension; a shift by 64 would be undefined
    if (*length && *length < 8 && p[*length - 1] & 0x80) v |= ~0ull << (8 * *length);
    return push_int(m, (int64_t)v);
}

static dt_status push_text(machine *m, size_t n_length) {
    const uint8_t *length = torch_pickle_take(m, n_length);
    uint32_t n = !length ? 0 : n_length == 1 ? *length : dt_le32(length); // 1 byte, or 4 little-endian
    const uint8_t *p = length ? torch_pickle_take(m, n) : NULL;
    if (!p) return torch_pickle_bad(m, "cut off");
    // would end names early and let two look alike
    if (memchr(p, 0, n)) return torch_pickle_bad(m, "a text with a zero byte");
    node *t = torch_pickle_make(m, TEXT);
    // cut to MAX_TEXT bytes: texts other than names may be long
    t->text = dt_arena_printf(m->arena, "%.*s", (int)(n < MAX_TEXT ? n : MAX_TEXT), (const char *)p);
    return torch_pickle_push(m, t);
}

static dt_status find_global(machine *m, const char *name) {
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) { // a table of 15
        if (strcmp(globals[i].name, name) != 0) continue;
        node *g = torch_pickle_make(m, GLOBAL);
        g->call = &globals[i];
        return torch_pickle_push(m, g);
    }
    return torch_pickle_refuse(m, "global", name);
}

static dt_status push_global(machine *m) {
    char name[512];
    const uint8_t *module = m->at, *line = memchr(module, '\n', (size_t)(m->end - module)); // "module\nname\n"
    const uint8_t *word = line ? line + 1 : NULL;
    const uint8_t *stop = word ? memchr(word, '\n', (size_t)(m->end - word)) : NULL;
    // bounds of name[512]
    if (!stop || line - module > 200 || stop - word > 200) return torch_pickle_bad(m, "a global without end");
    m->at = stop + 1;
    snprintf(name, sizeof name, "%.*s.%.*s", (int)(line - module), (const char *)module, (int)(stop - word),
             (const char *)word);
    return find_global(m, name);
}

// The same of two texts on the stack.
static dt_status pop_global(machine *m) {
    const node *word = pop(m), *module = pop(m); // name on top of module
    char name[512];
    if (!word || word->kind != TEXT || !module || module->kind != TEXT)
        return torch_pickle_bad(m, "a global without name");
    snprintf(name, sizeof name, "%.200s.%.200s", module->text, word->text);
    return find_global(m, name);
}

static dt_status put_at(machine *m, size_t i) {
    node *n = top(m);
    if (!n) return torch_pickle_bad(m, "nothing to remember");
    // a writer numbers what it remembers from 0
    // n_memo grows by one at most, so a file cannot request much
    if (i > m->n_memo) return torch_pickle_bad(m, "the memo has a hole");
    if (i == m->n_memo) {
        m->memo = dt_xgrow(m->memo, m->n_memo, sizeof *m->memo);
        m->n_memo++;
    }
    m->memo[i] = n;
    return DT_OK;
}

static dt_status torch_pickle_put(machine *m, size_t n_bytes) {
    const uint8_t *p = torch_pickle_take(m, n_bytes);
    return !p ? torch_pickle_bad(m, "cut off") : put_at(m, n_bytes == 1 ? p[0] : dt_le32(p));
}

static dt_status torch_pickle_get(machine *m, size_t n_bytes) {
    const uint8_t *p = torch_pickle_take(m, n_bytes);
    size_t i = !p ? SIZE_MAX : n_bytes == 1 ? p[0] : dt_le32(p); // SIZE_MAX: fails the test
    return i < m->n_memo ? torch_pickle_push(m, m->memo[i]) : torch_pickle_bad(m, "not in the memo");
}

// ---- what torch makes ------------------------------------------------------------------------------
// Item i of a tuple if it is of this kind, else NULL.
static node *torch_pickle_item(const node *tuple, size_t i, node_kind kind) {
    return i < tuple->n_items && tuple->items[i]->kind == kind ? tuple->items[i] : NULL;
}

// ('storage', type, key, location, elements)
static dt_status push_storage(machine *m) {
    node *id = pop(m);
    if (!id || id->kind != TUPLE) return torch_pickle_bad(m, "a persistent id that is no tuple");
    const node *word = torch_pickle_item(id, 0, TEXT), *type = torch_pickle_item(id, 1, GLOBAL),
               *key = torch_pickle_item(id, 2, TEXT);
    const node *n = torch_pickle_item(id, 4, INT);
    // item 3, the device, is ignored: all load into memory
    if (!word || strcmp(word->text, "storage") != 0 || !type || type->call->action != ACT_STORAGE_TYPE || !key || !n ||
        n->number < 0) // no negative count
        return torch_pickle_bad(m, "a persistent id that is no storage");
    node *s = torch_pickle_make(m, STORAGE);
    s->text = key->text;
    s->call = type->call;
    s->number = n->number;
    return torch_pickle_push(m, s);
}

// Whether the last element lies in the storage.
static bool torch_pickle_fits(const dt_torch_tensor *t) {
    int64_t last = t->offset;
    for (int i = 0; i < t->shape.n; i++) {
        int64_t span;
        if (t->shape.d[i] == 0) return true; // no element
        // offset and strides come from the file
        if (__builtin_mul_overflow(t->shape.d[i] - 1, t->stride[i], &span) || __builtin_add_overflow(last, span, &last))
            return false;
    }
    return last < t->storage_elements; // offset alone for a scalar
}

// (storage, offset, size, stride, …)
static dt_status push_tensor(machine *m, const node *args) {
    const node *storage = torch_pickle_item(args, 0, STORAGE), *offset = torch_pickle_item(args, 1, INT);
    const node *size = torch_pickle_item(args, 2, TUPLE), *stride = torch_pickle_item(args, 3, TUPLE);
    // size and stride have equally many items
    if (!storage || !offset || offset->number < 0 || !size || !stride || size->n_items != stride->n_items)
        return torch_pickle_bad(m, "a tensor that is not made of storage, offset, size and stride");
    if (size->n_items > DT_MAX_DIMS) return torch_pickle_bad(m, "a tensor of more than 6 dimensions");
    dt_torch_tensor *t = dt_arena_alloc(&m->nodes, sizeof *t);
    *t = (dt_torch_tensor){.type = storage->call->type,
                           .storage = storage->text,
                           .storage_elements = storage->number,
                           .offset = offset->number,
                           .shape.n = (int)size->n_items};
    int64_t n_elements = 1;
    for (int i = 0; i < t->shape.n; i++) {
        const node *d = torch_pickle_item(size, (size_t)i, INT), *s = torch_pickle_item(stride, (size_t)i, INT);
        if (!d || !s || d->number < 0 || s->number < 0 ||
            // a zero dimension must not hide an overflow of the others
            __builtin_mul_overflow(n_elements, d->number ? d->number : 1, &n_elements))
            return torch_pickle_bad(m, "a tensor with a size or stride that cannot be");
        t->shape.d[i] = d->number;
        t->stride[i] = s->number;
    }
    // with non-negative strides the last element is the farthest
    if (!torch_pickle_fits(t)) return torch_pickle_bad(m, "a tensor that is larger than its storage");
    node *n = torch_pickle_make(m, TENSOR);
    n->tensor = t;
    return torch_pickle_push(m, n);
}

static dt_status reduce(machine *m) {
    node *args = pop(m), *callee = pop(m); // REDUCE: callee below its arguments
    if (!args || args->kind != TUPLE || !callee || callee->kind != GLOBAL)
        return torch_pickle_bad(m, "a call of something that is no function");
    node *first = args->n_items ? args->items[0] : NULL;
    switch (callee->call->action) {
    case ACT_DICT:
        // OrderedDict(items) of protocol 2 comes as SETITEMS
        if (args->n_items) return torch_pickle_refuse(m, "a call with arguments of", callee->call->name);
        return push_new(m, DICT);
    case ACT_TENSOR:
        return push_tensor(m, args);
    case ACT_PARAMETER:
        // (tensor, requires_grad, hooks): the tensor is all
        return first && first->kind == TENSOR ? torch_pickle_push(m, first)
                                              : torch_pickle_bad(m, "a parameter without tensor");
    case ACT_SIZE:
        return first && first->kind == TUPLE ? torch_pickle_push(m, first) // torch.Size is a tuple
                                             : torch_pickle_bad(m, "a size that is no tuple");
    case ACT_STORAGE_TYPE:
        break; // not callable
    }
    return torch_pickle_refuse(m, "a call of", callee->call->name);
}

// Attributes of a dict, such as _metadata of a state dict, hold no tensors.
static dt_status torch_pickle_build(machine *m) {
    const node *state = pop(m), *object = top(m);
    if (!state || !object) return torch_pickle_bad(m, "the stack is empty");
    if (object->kind != DICT) return torch_pickle_refuse(m, "BUILD of", kind_names[object->kind]);
    return DT_OK;
}

static dt_status refuse_opcode(const machine *m, uint8_t code) {
    char name[32];
    snprintf(name, sizeof name, "0x%02x", code);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].code == code) snprintf(name, sizeof name, "%s", refused[i].name);
    return torch_pickle_refuse(m, "opcode", name);
}

static dt_status step(machine *m, uint8_t code) {
    switch (code) {
    case 0x80:
        return torch_pickle_take(m, 1) ? DT_OK : torch_pickle_bad(m, "cut off"); // PROTO
    case '(':
        m->marks = dt_xgrow(m->marks, m->n_marks, sizeof *m->marks); // MARK
        m->marks[m->n_marks++] = m->n_stack;
        return DT_OK;
    case '}':
        return push_new(m, DICT); // EMPTY_DICT
    case ']':
        return push_new(m, LIST); // EMPTY_LIST
    case ')':
        return push_new(m, TUPLE); // EMPTY_TUPLE
    case 'N':
        return push_new(m, NONE); // NONE
    case 0x88:
        return push_int(m, 1); // NEWTRUE
    case 0x89:
        return push_int(m, 0); // NEWFALSE
    case 'K':
        return push_number(m, 1); // BININT1
    case 'M':
        return push_number(m, 2); // BININT2
    case 'J':
        return push_number(m, 4); // BININT
    case 0x8a:
        return push_long(m); // LONG1
    case 'G':
        return torch_pickle_take(m, 8) ? push_new(m, NONE) : torch_pickle_bad(m, "cut off"); // BINFLOAT
    case 'X':
        return push_text(m, 4); // BINUNICODE
    case 0x8c:
        return push_text(m, 1); // SHORT_BINUNICODE
    case 0x93:
        return pop_global(m); // STACK_GLOBAL
    case 0x94:
        return put_at(m, m->n_memo); // MEMOIZE
    case 0x95:
        return torch_pickle_take(m, 8) ? DT_OK : torch_pickle_bad(m, "cut off"); // FRAME
    case 'c':
        return push_global(m); // GLOBAL
    case 'q':
        return torch_pickle_put(m, 1); // BINPUT
    case 'r':
        return torch_pickle_put(m, 4); // LONG_BINPUT
    case 'h':
        return torch_pickle_get(m, 1); // BINGET
    case 'j':
        return torch_pickle_get(m, 4); // LONG_BINGET
    case 't':
        return push_tuple(m, -1); // TUPLE
    case 0x85:
        return push_tuple(m, 1); // TUPLE1
    case 0x86:
        return push_tuple(m, 2); // TUPLE2
    case 0x87:
        return push_tuple(m, 3); // TUPLE3
    case 'a':
        return add_items(m, LIST, false); // APPEND
    case 'e':
        return add_items(m, LIST, true); // APPENDS
    case 's':
        return add_items(m, DICT, false); // SETITEM
    case 'u':
        return add_items(m, DICT, true); // SETITEMS
    case 'Q':
        return push_storage(m); // BINPERSID
    case 'R':
        return reduce(m); // REDUCE
    case 'b':
        return torch_pickle_build(m); // BUILD
    default:
        return refuse_opcode(m, code);
    }
}

static dt_status torch_pickle_run(machine *m) {
    for (;;) {
        const uint8_t *code = torch_pickle_take(m, 1);
        if (!code) return torch_pickle_bad(m, "cut off");
        if (*code == '.') return top(m) ? DT_OK : torch_pickle_bad(m, "it is empty");
        DT_TRY(step(m, *code));
    }
}

// ---- dicts to names --------------------------------------------------------------------------------
typedef struct listing {
    machine *m;
    dt_torch_tensor *tensors; // heap
    size_t n, n_items;
    int n_visits;
} listing;

static const char *key_text(machine *m, const node *key) {
    if (key->kind == TEXT) return key->text;
    // state of optimizers has integer keys; other keys hold no weights
    return key->kind == INT ? dt_arena_printf(m->arena, "%lld", (long long)key->number) : NULL;
}

static dt_status list_dict(listing *l, const node *dict, const char *prefix, int depth) {
    l->n_items += dict->n_items; // a dict may be in several, and is read in each
    // also ends a dict that contains itself
    if (depth > MAX_DEPTH || l->n_items > MAX_ITEMS) return torch_pickle_bad(l->m, "dicts within dicts without end");
    for (size_t i = 0; i + 1 < dict->n_items; i += 2) {
        const node *value = dict->items[i + 1];
        if (value->kind != TENSOR && value->kind != DICT) continue; // numbers, lists and texts of a training checkpoint
        const char *key = key_text(l->m, dict->items[i]);
        if (!key) continue;
        // a shared dict is listed under each of its names
        if (++l->n_visits > MAX_VISITS) return torch_pickle_bad(l->m, "more than 131072 entries");
        const char *name = dt_arena_printf(l->m->arena, "%s%s", prefix, key);
        if (strlen(name) > MAX_TEXT) return torch_pickle_bad(l->m, "a name of more than 1 KiB");
        if (value->kind == DICT) {
            // module.name, as state_dict joins them
            DT_TRY(list_dict(l, value, dt_arena_printf(l->m->arena, "%s.", name), depth + 1));
        } else {
            l->tensors = dt_xgrow(l->tensors, l->n, sizeof *l->tensors);
            l->tensors[l->n] = *value->tensor; // a copy: storages may be shared by several
            l->tensors[l->n++].name = name;
        }
    }
    return DT_OK;
}

dt_status dt_torch_pickle_read(dt_torch_tensor **tensors, int *n, dt_arena *arena, const void *data, size_t n_bytes,
                               const char *where) {
    machine m = {.arena = arena, .at = data, .end = (const uint8_t *)data + n_bytes, .where = where};
    listing l = {.m = &m};
    m.stack = dt_xgrow(NULL, 0, sizeof *m.stack); // so that positions in it are pointers
    dt_arena_init(&m.nodes);
    *tensors = NULL;
    *n = 0;
    dt_status st = torch_pickle_run(&m);
    const node *root = st == DT_OK ? top(&m) : NULL;
    if (root && root->kind != DICT) // a pickled module or list
        st = dt_fail(DT_E_CKPT, "%s: it holds %s, not a state dict (a dict of tensors)", where, kind_names[root->kind]);
    if (st == DT_OK) st = list_dict(&l, root, "", 0);
    if (st == DT_OK && !l.n) st = dt_fail(DT_E_CKPT, "%s: no tensor is in its dicts", where);
    if (st == DT_OK) {
        *tensors = dt_arena_alloc(arena, l.n * sizeof **tensors);
        memcpy(*tensors, l.tensors, l.n * sizeof **tensors);
        *n = (int)l.n;
    }
    for (size_t i = 0; i < m.n_owned; i++) free(m.owned[i]->items); // nodes are the arena's, their items are heap
    free(l.tensors);
    free(m.owned);
    free(m.memo);
    free(m.marks);
    free(m.stack);
    dt_arena_fini(&m.nodes);
    return st;
}
