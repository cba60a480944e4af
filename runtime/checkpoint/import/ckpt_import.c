// ckpt_import.c: weights of another run or program, for model.init.
//
// A half-loaded network trains badly, and nobody sees why. So every tensor of the model must be in the file, in its
// shape, and what is not is an error that names it. Exceptions: the user's list keeps its initial values; the head,
// which belongs to the classes and not to the network; position embeddings, which are resized to the image. A network
// of another depth is reported as such, also where all tensors are found because the file's is the deeper one. Everything
// is checked before anything is copied, and what was done is logged.

#include "weights_file.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/ckpt.h"
#include "graph/ir.h"

#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- weight names -------------------------------------------------------------------------------------------------

// Names of tensors in files. The model's names are torchvision's. A file's name is one of those, or one
// that timm has for the same tensor, by the network's builder (dt_graph_alias).
//
// The prefix is not guessed from a list: every dot behind which the rest of a file's name is a tensor of the model
// votes for what stands before it. That finds "module." of DataParallel, "state_dict." of a training checkpoint, "backbone."
// of a detector and any combination.

enum { MAX_NAME = 512 }; // bytes; longer names are cut and match nothing

// Which tensor of a file is which of the model's.
typedef struct weight_map {
    char *prefix; // heap; "" if there is none
    int *tensor;  // by tensor of the file: index of the model's, -1: none; heap
    int *file;    // by tensor of the model: index in the file, -1: none; heap
} weight_map;

#define LAYER "encoder.layers.encoder_layer_*."
// Beginnings of names: theirs, the model's. * is a number.
static const char *const renamed[][2] = {
    // torchvision's Vision Transformer, as the files that it downloads have them
    {LAYER "mlp.linear_1.", LAYER "mlp.0."},
    {LAYER "mlp.linear_2.", LAYER "mlp.3."},
};

// If `name` begins with `theirs`: ours and the rest, in buf.
static bool rename_as(const char *name, const char *theirs, const char *ours, char *buf, size_t cap) {
    const char *number = NULL;
    int n_digits = 0;
    for (; *theirs; theirs++) {
        if (*theirs == '*') {
            number = name; // last * only; patterns have one
            while (isdigit((unsigned char)*name)) name++;
            n_digits = (int)(name - number);
            if (n_digits == 0) return false; // * is one number, at least one digit
        } else if (*name++ != *theirs) {
            return false;
        }
    }
    const char *star = strchr(ours, '*');
    int head = star ? (int)(star - ours) : (int)strlen(ours);
    snprintf(buf, cap, "%.*s%.*s%s%s", head, ours, n_digits, number ? number : "", star ? star + 1 : "", name);
    return true;
}

static const char *other_name(const char *name, char *buf, size_t cap) {
    // a few rules: linear
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (rename_as(name, renamed[i][0], renamed[i][1], buf, cap)) return buf;
    return NULL;
}

// ---- names of the model ----------------------------------------------------------------------------
typedef struct known {
    char *name; // heap
    int tensor; // index in the caller's array
} known;

static int weight_names_by_name(const void *a, const void *b) {
    return strcmp(((const known *)a)->name, ((const known *)b)->name);
}

// Of tensors, *n of them, and what timm calls those that it calls otherwise; *n: how many names. scope: that in front of
// their names in the graph, which timm does not know.
static known *sort_names(const dt_ckpt_tensor *tensors, const dt_graph *g, const char *scope, int *n) {
    // names are copied: aliases are built in buf
    const int n_tensors = *n;
    known *list = dt_xcalloc(2 * (size_t)n_tensors + 1, sizeof *list); // each tensor may have two names
    for (int i = 0; i < n_tensors; i++) {
        char buf[MAX_NAME], full[MAX_NAME];
        list[i] = (known){dt_xstrdup(tensors[i].name), i};
        snprintf(full, sizeof full, "%s%s", scope, tensors[i].name);
        // only where timm's name differs
        if (g && strcmp(dt_graph_timms_name(g, full, buf, sizeof buf, NULL), full) != 0)
            list[(*n)++] = (known){dt_xstrdup(buf + strlen(scope)), i};
    }
    if (*n) qsort(list, (size_t)*n, sizeof *list, weight_names_by_name);
    return list;
}

static int weight_names_find(const known *list, int n, const char *name) {
    const known key = {(char *)name, 0};
    const known *k = n ? bsearch(&key, list, (size_t)n, sizeof key, weight_names_by_name) : NULL;
    return k ? k->tensor : -1;
}

// The model's tensor that a file calls `name`, without prefix; -1: none.
static int weight_names_tensor_of(const known *list, int n, const char *name) {
    char buf[MAX_NAME];
    int i = weight_names_find(list, n, name);
    // torchvision's or timm's name directly
    if (i >= 0) return i;
    const char *other = other_name(name, buf, sizeof buf);
    return other ? weight_names_find(list, n, other) : -1;
}

// The name of a file's tensor without the prefix, and torchvision's downloads renamed. NULL: it lacks the prefix.
static const char *weight_map_name(const weight_map *map, const char *name, char *buf, size_t cap) {
    size_t n = strlen(map->prefix);
    if (strncmp(name, map->prefix, n) != 0) return NULL; // outside the prefix
    const char *other = other_name(name + n, buf, cap);
    return other ? other : name + n;
}

// ---- the prefix ------------------------------------------------------------------------------------
typedef struct ballot {
    char *prefix;
    int n_votes;
} ballot;

static void vote(ballot **ballots, int *n, const char *name, size_t n_bytes) {
    for (int i = 0; i < *n; i++) {
        ballot *b = &(*ballots)[i];
        if (strncmp(b->prefix, name, n_bytes) == 0 && b->prefix[n_bytes] == 0) { // same length and bytes
            b->n_votes++;
            return;
        }
    }
    *ballots = dt_xgrow(*ballots, (size_t)*n, sizeof **ballots);
    (*ballots)[(*n)++] = (ballot){dt_xprintf("%.*s", (int)n_bytes, name), 1};
}

// Of a file that has less than half of the model's tensors anywhere, equal votes do not count: another network.
static dt_status elect(char **prefix, const ballot *ballots, int n, int n_tensors, const char *where) {
    const ballot *most = NULL, *as_many = NULL;
    for (int i = 0; i < n; i++) {
        if (!most || ballots[i].n_votes > most->n_votes)
            most = &ballots[i], as_many = NULL; // a new leader has no equal yet
        else if (ballots[i].n_votes == most->n_votes)
            as_many = &ballots[i];
    }
    if (as_many && 2 * most->n_votes < n_tensors) most = NULL; // a few votes by chance
    if (as_many && most)                                       // an EMA copy beside the weights, for example
        return dt_fail(DT_E_CKPT,
                       "%s: this model's tensors are there more than once, for example under '%s' "
                       "and '%s': model.init_prefix chooses",
                       where, most->prefix, as_many->prefix);
    *prefix = dt_xstrdup(most ? most->prefix : ""); // no votes: names are compared as they stand
    return DT_OK;
}

// o->prefix NULL: the one under which most of the model's tensors are found, or of an encoder its scope, where the file
// has it. Where several have as many it is DT_E_CKPT, which names them. `where` stands for the file in messages.
static dt_status weight_map_make(weight_map *map, const dt_weights *w, const char *where, const dt_ckpt_import_opts *o,
                                 const dt_ckpt_tensor *tensors, int n) {
    int n_names = n;
    known *list = sort_names(tensors, o->graph, o->scope, &n_names);
    const char *prefix = o->prefix;
    ballot *ballots = NULL;
    int n_ballots = 0, n_file = dt_weights_count(w);
    dt_status st = DT_OK;
    *map = (weight_map){0};
    for (int i = 0; i < n_file && !prefix && *o->scope; i++) // a fusion that has this encoder, among others
        if (strncmp(dt_weights_name(w, i), o->scope, strlen(o->scope)) == 0) prefix = o->scope;
    if (prefix) {
        size_t n_bytes = strlen(prefix);
        bool whole = n_bytes == 0 || prefix[n_bytes - 1] == '.';
        map->prefix = dt_xprintf("%s%s", prefix, whole ? "" : "."); // a module's name gets its dot
    } else {
        for (int i = 0; i < n_file; i++) {
            const char *name = dt_weights_name(w, i);
            // every suffix behind a dot, the whole name first: quadratic in dots only, of which names have about five
            for (const char *rest = name; rest; rest = strchr(rest, '.') ? strchr(rest, '.') + 1 : NULL)
                if (weight_names_tensor_of(list, n_names, rest) >= 0)
                    vote(&ballots, &n_ballots, name, (size_t)(rest - name));
        }
        st = elect(&map->prefix, ballots, n_ballots, n, where);
    }
    map->tensor = dt_xcalloc((size_t)n_file + 1, sizeof *map->tensor);
    map->file = dt_xcalloc((size_t)n + 1, sizeof *map->file);
    for (int i = 0; i < n; i++) map->file[i] = -1; // -1: not in the file
    for (int i = 0; st == DT_OK && i < n_file; i++) {
        const char *name = dt_weights_name(w, i);
        size_t skip = strlen(map->prefix);
        map->tensor[i] =
            strncmp(name, map->prefix, skip) == 0 ? weight_names_tensor_of(list, n_names, name + skip) : -1;
        if (map->tensor[i] >= 0) map->file[map->tensor[i]] = i; // the last one, if a file has both names
    }
    for (int i = 0; i < n_ballots; i++) free(ballots[i].prefix);
    free(ballots);
    for (int i = 0; i < n_names; i++) free(list[i].name);
    free(list);
    return st;
}

enum { MAX_NAMED = 6, MAX_GRID = 1024 }; // names in a message; patches along a side

#define POSITIONS "encoder.pos_embedding" // (1, 1 + rows * columns, dim): the class token's first

typedef enum fate { TAKEN, RESIZED, KEPT, NEW_HEAD, N_FATES } fate; // N_FATES: how many

typedef struct import {
    char *file;
    const dt_ckpt_import_opts *o; // borrowed
    dt_ckpt_tensor *tensors;
    int n;
    dt_weights *w;
    weight_map map; // which tensor of the file belongs to which of the model
    fate *fates;    // by tensor of the model
} import;

// The first few names, and how many there are.
typedef struct name_list {
    char text[1024];
    int n;
} name_list;

static void ckpt_import_list_name(name_list *l, const char *name) {
    size_t at = strlen(l->text); // appends; after MAX_NAMED only counts
    if (l->n++ < MAX_NAMED) snprintf(l->text + at, sizeof l->text - at, "%s%.100s", at ? ", " : "", name);
}

static const char *list_text(name_list *l) {
    size_t at = strlen(l->text);
    // once, at the end
    if (l->n > MAX_NAMED) snprintf(l->text + at, sizeof l->text - at, " and %d more", l->n - MAX_NAMED);
    return l->text;
}

// Whether `name` is `prefix` or a tensor of the module `prefix`.
static bool belongs_to(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    // "layer1" matches layer1.0, not layer10
    return n > 0 && strncmp(name, prefix, n) == 0 && (name[n] == 0 || name[n] == '.' || prefix[n - 1] == '.');
}

static bool ckpt_import_is_listed(const char *const *modules, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (belongs_to(name, modules[i])) return true;
    return false;
}

static bool is_head(const import *m, const char *name) {
    return ckpt_import_is_listed(m->o->heads, m->o->n_heads, name);
}

static dt_status check_keep(const import *m) {
    // a misspelt name would silently keep nothing
    for (int i = 0; i < m->o->n_keep; i++) {
        bool used = false;
        for (int k = 0; k < m->n; k++) used |= belongs_to(m->tensors[k].name, m->o->keep[i]);
        if (!used)
            return dt_fail(DT_E_USAGE, "model.init_keep: this model has no tensor %s or %s.…", m->o->keep[i],
                           m->o->keep[i]);
    }
    return DT_OK;
}

// ---- which file ------------------------------------------------------------------------------------
static dt_status find_in_run(char **file, const char *run, const char *which) {
    char *found;
    int64_t step;
    dt_status st = dt_ckpt_find_in_run(run, which, &step, &found); // NULL: the best, else the latest
    // only the weights: optimizer state stays with its run
    if (st == DT_OK) *file = dt_xprintf("%s/model.safetensors", found);
    free(found);
    return st;
}

// FILE, URL, RUN or RUN@WHICH.
static dt_status ckpt_import_find_file(char **file, const char *path) {
    const char *at = strrchr(path, '@'); // the last one: folders may contain @
    char *run = at ? dt_xprintf("%.*s", (int)(at - path), path) : NULL;
    dt_status st = DT_OK;
    if (dt_io_is_dir(path))
        st = find_in_run(file, path, NULL);
    else if (!dt_io_exists(path) && run && dt_io_is_dir(run)) // a file called a@b wins over run a
        st = find_in_run(file, run, at + 1);
    else
        *file = dt_xstrdup(path); // a file, a URL or an error of dt_weights_open
    free(run);
    return st;
}

// ---- is it this network ----------------------------------------------------------------------------
// Every layer has one tensor of such a name; `plus` are layers that have none.
static const struct {
    const char *key, *pattern, *timms;
    int plus;
} depths[] = {
    {"depth", "layer[1-4].*.conv[1-3].weight", "", 2}, // and the stem, and the head
    {"blocks", "encoder.layers.encoder_layer_*.ln_1.weight", "blocks.*.norm1.weight", 0},
};

static dt_status check_depth(const import *m) {
    char buf[512];
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        int here = 0, there = 0;
        for (int k = 0; k < m->n; k++) here += fnmatch(depths[i].pattern, m->tensors[k].name, 0) == 0;
        for (int k = 0; k < dt_weights_count(m->w); k++) {
            // without prefix, in the model's spelling
            const char *name = weight_map_name(&m->map, dt_weights_name(m->w, k), buf, sizeof buf);
            // names of torchvision or timm
            there += name && (fnmatch(depths[i].pattern, name, 0) == 0 || fnmatch(depths[i].timms, name, 0) == 0);
        }
        if (here && there && here != there) // 0: a network of another kind, reported by names
            return dt_fail(DT_E_CKPT, "%s looks like %s%s%s %d, the config says %d", m->file,
                           *m->o->scope ? "model.encoders." : "model.", m->o->scope, depths[i].key,
                           there + depths[i].plus, here + depths[i].plus);
    }
    return DT_OK;
}

// Of timm's networks that are not torchvision's names too.
static bool looks_like_timms(const char *name) {
    static const char *const patterns[] = {"conv_stem.weight",
                                           "blocks.*.norm1.weight",
                                           "stages.*.blocks.*",
                                           "patch_embed.proj.weight",
                                           "layer[1-4].*.se.*",
                                           "head.fc.weight",
                                           "layer[1-4].*.downsample.2.weight"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) // the pattern's * crosses dots
        if (fnmatch(patterns[i], name, 0) == 0) return true;
    return false;
}

// Whether both hold the same values in the same order: equal but for dimensions of 1.
static bool same_values(const dt_shape *a, const dt_shape *b) {
    int i = 0, k = 0;
    while (true) {
        while (i < a->n && a->d[i] == 1) i++;
        while (k < b->n && b->d[k] == 1) k++;
        if (i == a->n || k == b->n) return i == a->n && k == b->n; // both must end together
        if (a->d[i++] != b->d[k++]) return false;                  // first difference apart from ones
    }
}

// Side of a square of patches, if the shape is that of position embeddings for one; else 0.
static int ckpt_import_side_of(const dt_shape *s) {
    if (s->n != 3 || s->d[0] != 1 || s->d[1] > 1 + MAX_GRID * MAX_GRID) return 0; // bounded before the square root
    int side = (int)lround(sqrt((double)(s->d[1] - 1))); // rounded: sqrt of a perfect square may be one ulp off
    // -1: without the class token
    return (int64_t)side * side == s->d[1] - 1 ? side : 0;
}

static bool can_resize(const import *m, const dt_ckpt_tensor *t, const dt_shape *there) {
    // class token and patches, the same width
    return strcmp(t->name, POSITIONS) == 0 && ckpt_import_side_of(there) > 0 && t->shape.n == 3 &&
           there->d[2] == t->shape.d[2] && t->shape.d[1] == 1 + (int64_t)m->o->grid[0] * m->o->grid[1];
}

// The module of a tensor, which a user would name to keep it.
static const char *module_of(const char *name, char *buf, size_t cap) {
    const char *dot = strrchr(name, '.');
    snprintf(buf, cap, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
    return buf;
}

static dt_status fail_shape(const import *m, const dt_ckpt_tensor *t, const dt_shape *there) {
    char module[128], want[96], have[96];
    int n_other = 0;
    for (int i = 0; i < m->n; i++) {
        dt_shape s = m->tensors[i].shape;
        if (m->map.file[i] >= 0) dt_weights_shape(m->w, m->map.file[i], &s);
        n_other += !same_values(&s, &m->tensors[i].shape);
    }
    // n_other: more than half differ means another variant, fewer a single layer
    char *way_out =
        2 * n_other > m->n
            ? dt_xprintf("%d of %d tensors differ so: the file is of another size or variant", n_other, m->n)
            : dt_xprintf("model.init_keep=%s%s leaves the initial values there", m->o->scope,
                         module_of(t->name, module, sizeof module));
    const dt_status st =
        dt_fail(DT_E_CKPT, "%s: tensor '%s' is %s, this model expects %s; %s", m->file, t->name,
                dt_shape_print(there, have, sizeof have), dt_shape_print(&t->shape, want, sizeof want), way_out);
    free(way_out);
    return st;
}

// A head is drawn anew as a whole: bias too where only the weight differs.
static bool head_fits(const import *m, const char *name) {
    char module[128];
    module_of(name, module, sizeof module); // bias and weight stand or fall together
    for (int i = 0; i < m->n; i++) {
        dt_shape there;
        if (!belongs_to(m->tensors[i].name, module)) continue;
        if (m->map.file[i] < 0) return false; // not in the file
        dt_weights_shape(m->w, m->map.file[i], &there);
        if (!same_values(&there, &m->tensors[i].shape)) return false;
    }
    return true;
}

// Where most are not in the file, that is what is wrong with it, and not the shape of one of a common name.
static int n_without(const import *m) {
    int n = 0;
    for (int i = 0; i < m->n; i++) n += m->map.file[i] < 0;
    return n;
}

static dt_status ckpt_import_decide(import *m, int i, name_list *missing) {
    const dt_ckpt_tensor *t = &m->tensors[i];
    const int k = m->map.file[i];
    dt_shape there;
    m->fates[i] = TAKEN;                                            // until decided otherwise
    if (ckpt_import_is_listed(m->o->keep, m->o->n_keep, t->name)) { // what the user keeps is not even compared
        m->fates[i] = KEPT;
    } else if (m->o->renew_heads && is_head(m, t->name) && !head_fits(m, t->name)) { // a classifier of other classes
        m->fates[i] = NEW_HEAD;
    } else if (k < 0) {
        ckpt_import_list_name(missing, t->name); // collected: one message names all
    } else {
        dt_weights_shape(m->w, k, &there);
        if (!same_values(&there, &t->shape) && !can_resize(m, t, &there)) {
            if (2 * n_without(m) <= m->n) return fail_shape(m, t, &there); // see n_without
            ckpt_import_list_name(missing, t->name); // that of another network, by chance of this name
            return DT_OK;
        }
        if (!same_values(&there, &t->shape)) m->fates[i] = RESIZED;
        return dt_weights_check(m->w, k); // an element type that can be converted
    }
    return DT_OK;
}

// before anything is copied
static dt_status decide_all(import *m) {
    name_list missing = {.n = 0}, there = {.n = 0};
    char module[128];
    int first = -1;
    bool timms = false;
    for (int i = 0; i < m->n; i++) {
        DT_TRY(ckpt_import_decide(m, i, &missing));
        if (missing.n == 1 && first < 0) first = i; // index of the first missing tensor, for the hint
    }
    if (missing.n == 0) return DT_OK;
    for (int k = 0; k < dt_weights_count(m->w); k++) {
        ckpt_import_list_name(&there, dt_weights_name(m->w, k));
        timms |= looks_like_timms(dt_weights_name(m->w, k)); // timm's variants under other names
    }
    return dt_fail(DT_E_CKPT,
                   "%s: of this model's %d tensors %d are not there: %s; it has %s%s. Another model, "
                   "or model.init_keep=%s%s leaves the initial values",
                   m->file, m->n, missing.n, list_text(&missing), list_text(&there),
                   timms ? " (these look like timm's names: docs/reference/models.md says which model "
                           "fits which of timm's)"
                         : "",
                   m->o->scope, module_of(m->tensors[first].name, module, sizeof module));
}

// ---- taking ----------------------------------------------------------------------------------------
static dt_status take_positions(import *m, int i) {
    const dt_ckpt_tensor *t = &m->tensors[i];
    dt_shape there;
    dt_weights_shape(m->w, m->map.file[i], &there);
    const int side = ckpt_import_side_of(&there), dim = (int)there.d[2];
    float *values = dt_xcalloc((size_t)dt_shape_elements(&there), sizeof *values);
    dt_status st = dt_weights_read(m->w, m->map.file[i], values);
    if (st == DT_OK) {
        memcpy(t->data, values, (size_t)dim * sizeof *values); // class token: as it is
        // (rows, columns, dim), without the token
        dt_ckpt_resize_positions(t->data + dim, m->o->grid[0], m->o->grid[1], values + dim, side, side, dim);
        dt_info("%s: positions of %dx%d patches are resized to %dx%d", m->file, side, side, m->o->grid[0],
                m->o->grid[1]);
    }
    free(values);
    return st;
}

static void pass_classes(const import *m) {
    const char *classes = dt_weights_metadata(m->w, "classes");
    bool taken = false;
    // class names hold only if their head was taken
    for (int i = 0; i < m->n; i++) taken |= m->fates[i] == TAKEN && is_head(m, m->tensors[i].name);
    *m->o->classes = taken && classes ? dt_xstrdup(classes) : NULL;
}

// ---- the report ------------------------------------------------------------------------------------
static void ckpt_import_report(const import *m, int *n_taken) {
    name_list fates[N_FATES] = {{.n = 0}}, extra = {.n = 0};
    int n_beside = 0;
    for (int i = 0; i < m->n; i++) ckpt_import_list_name(&fates[m->fates[i]], m->tensors[i].name);
    for (int k = 0; k < dt_weights_count(m->w); k++) {
        const char *name = dt_weights_name(m->w, k), *dot = strrchr(name, '.');
        // PyTorch's counter of a batch norm has no use here
        if (m->map.tensor[k] >= 0 || (dot && strcmp(dot, ".num_batches_tracked") == 0)) continue;
        if (strncmp(name, m->map.prefix, strlen(m->map.prefix)) == 0) // under the prefix, but not of this network
            ckpt_import_list_name(&extra, name);
        else
            n_beside++; // an optimizer's state, another network
    }
    *n_taken = fates[TAKEN].n + fates[RESIZED].n; // kept and new heads do not count
    char more[256] = "";
    const bool part = *m->o->scope && extra.n; // of an encoder: the head of the file's network
    const struct {
        int n;
        const char *what;
    } counts[] = {{fates[KEPT].n + fates[NEW_HEAD].n, "initial"},
                  {fates[RESIZED].n, "resized"},
                  {part ? 0 : extra.n, "not of this model"},
                  {n_beside, "elsewhere in the file"}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t at = strlen(more);
        if (counts[i].n) snprintf(more + at, sizeof more - at, ", %d %s", counts[i].n, counts[i].what);
    }
    dt_info("%s: %d of %d tensors from %s%s%s%s%s%s", m->o->key, *n_taken, m->n, m->file,
            *m->map.prefix ? " under " : "", m->map.prefix, more, part ? "; left out: " : "",
            part ? list_text(&extra) : "");
    if (fates[KEPT].n) dt_info("  model.init_keep: %s", list_text(&fates[KEPT]));
    if (fates[NEW_HEAD].n) dt_info("  a head of its own, drawn from the seed: %s", list_text(&fates[NEW_HEAD]));
    if (extra.n && !part) dt_warn("%s: not of this model, and left out: %s", m->file, list_text(&extra));
}

dt_status dt_ckpt_import(const char *path, const dt_ckpt_import_opts *given, dt_ckpt_tensor *tensors, int n_tensors,
                         int *n_taken) {
    dt_ckpt_import_opts copy = *given, *o = &copy;
    if (!o->scope) o->key = "model.init", o->scope = "";
import m = {.o = o, .tensors = tensors, .n = n_tensors };
    *n_taken = 0;
    m.fates = dt_xcalloc((size_t)n_tensors + 1, sizeof *m.fates);
    // order: cheap checks, then the file, then names, then values
    dt_status st = check_keep(&m);
    if (st == DT_OK) st = ckpt_import_find_file(&m.file, path);
    if (st == DT_OK) st = dt_weights_open(&m.w, m.file, o->max_bytes);
    if (st == DT_OK) st = weight_map_make(&m.map, m.w, m.file, o, tensors, n_tensors);
    if (st == DT_OK) st = check_depth(&m);
    if (st == DT_OK) st = decide_all(&m);
    for (int i = 0; st == DT_OK && i < n_tensors; i++) {
        if (m.fates[i] == TAKEN) st = dt_weights_read(m.w, m.map.file[i], tensors[i].data); // converts to f32
        if (m.fates[i] == RESIZED) st = take_positions(&m, i);
    }
    if (st == DT_OK) ckpt_import_report(&m, n_taken);
    if (st == DT_OK && o->classes) pass_classes(&m);
    free(m.map.prefix);
    free(m.map.tensor);
    free(m.map.file);
    dt_weights_close(m.w);
    free(m.fates);
    free(m.file);
    return st;
}

// ---- ckpt positions -----------------------------------------------------------------------------------------------

// Position embeddings for another number of patches: one pass over columns, one over rows, each a
// cubic kernel (Keys, 1981, a = -1/2) that is as much wider as the grid becomes smaller. It is what PyTorch's
// interpolate(mode="bicubic", antialias=True) computes, and so timm.

static double cubic(double x) {
    x = fabs(x); // Keys's cubic convolution, a = -0.5
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

// Sums rows of `width` values: n_in rows to n_out.
static void resize_rows(float *to, int n_out, const float *from, int n_in, size_t width) {
    const double scale = (double)n_in / n_out, wide = scale > 1 ? scale : 1; // wide: antialiasing when the grid shrinks
    for (int i = 0; i < n_out; i++) {
        const double center =
            scale * (i + 0.5); // centre of output i in input coordinates, where pixel k covers [k, k + 1)
        // support of 2 on each side; truncation as in PyTorch
        int first = (int)(center - 2 * wide + 0.5), end = (int)(center + 2 * wide + 0.5);
        float *row = to + (size_t)i * width;
        double sum = 0;
        if (first < 0) first = 0;
        if (end > n_in) end = n_in;
        // normalized: weights at the border add up to 1
        for (int k = first; k < end; k++) sum += cubic((k - center + 0.5) / wide);
        memset(row, 0, width * sizeof *row);
        for (int k = first; k < end; k++) {
            // sum is never 0: the centre is inside
            const float weight = (float)(cubic((k - center + 0.5) / wide) / sum);
            // values of one position, or of a whole row of positions
            for (size_t c = 0; c < width; c++) row[c] += weight * from[(size_t)k * width + c];
        }
    }
}

void dt_ckpt_resize_positions(float *to, int to_h, int to_w, const float *from, int from_h, int from_w, int dim) {
    const size_t in_row = (size_t)from_w * (size_t)dim, out_row = (size_t)to_w * (size_t)dim; // floats per row
    float *columns = dt_xcalloc((size_t)from_h * out_row, sizeof *columns);                   // (from_h, to_w, dim)
    for (int y = 0; y < from_h; y++)
        resize_rows(columns + (size_t)y * out_row, to_w, from + (size_t)y * in_row, from_w, (size_t)dim);
    resize_rows(to, to_h, columns, from_h, out_row);
    free(columns);
}
