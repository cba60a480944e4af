// weight_names.c: names of tensors in files. The model's names are torchvision's. A file's name is one of those, or one
// that timm has for the same tensor, as the network's builder says (dt_graph_alias).
//
// The prefix is not guessed from a list: every dot behind which the rest of a file's name is a tensor of the model
// votes for what stands before it. That finds "module." of DataParallel, "state_dict." of a training checkpoint, "backbone."
// of a detector and any combination.
#include "weight_names.h"

#include "base/arena.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 512 };

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
            number = name;
            while (isdigit((unsigned char)*name)) name++;
            n_digits = (int)(name - number);
            if (n_digits == 0) return false;
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
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (rename_as(name, renamed[i][0], renamed[i][1], buf, cap)) return buf;
    return NULL;
}

// ---- names of the model ----------------------------------------------------------------------------
typedef struct known {
    char *name; // heap
    int tensor;
} known;

static int weight_names_by_name(const void *a, const void *b) {
    return strcmp(((const known *)a)->name, ((const known *)b)->name);
}

// Of tensors, *n of them, and what timm calls those that it calls otherwise; *n: how many names.
static known *sort_names(const dt_ckpt_tensor *tensors, const dt_graph *g, int *n) {
    const int n_tensors = *n;
    known *list = dt_xcalloc(2 * (size_t)n_tensors + 1, sizeof *list);
    for (int i = 0; i < n_tensors; i++) {
        char buf[MAX_NAME];
        list[i] = (known){dt_xstrdup(tensors[i].name), i};
        if (g && strcmp(dt_graph_timms_name(g, tensors[i].name, buf, sizeof buf, NULL), tensors[i].name) != 0)
            list[(*n)++] = (known){dt_xstrdup(buf), i};
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
    if (i >= 0) return i;
    const char *other = other_name(name, buf, sizeof buf);
    return other ? weight_names_find(list, n, other) : -1;
}

const char *dt_weight_map_name(const dt_weight_map *map, const char *name, char *buf, size_t cap) {
    size_t n = strlen(map->prefix);
    if (strncmp(name, map->prefix, n) != 0) return NULL;
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
        if (strncmp(b->prefix, name, n_bytes) == 0 && b->prefix[n_bytes] == 0) {
            b->n_votes++;
            return;
        }
    }
    *ballots = dt_xgrow(*ballots, (size_t)*n, sizeof **ballots);
    (*ballots)[(*n)++] = (ballot){dt_xprintf("%.*s", (int)n_bytes, name), 1};
}

static void vote_all(ballot **ballots, int *n_ballots, const dt_weights *w, const known *list, int n) {
    for (int i = 0; i < dt_weights_count(w); i++) {
        const char *name = dt_weights_name(w, i);
        for (const char *rest = name; rest; rest = strchr(rest, '.') ? strchr(rest, '.') + 1 : NULL)
            if (weight_names_tensor_of(list, n, rest) >= 0) vote(ballots, n_ballots, name, (size_t)(rest - name));
    }
}

// Of a file that has less than half of the model's tensors anywhere, equal votes say nothing: it is of another network.
static dt_status elect(char **prefix, const ballot *ballots, int n, int n_tensors, const char *where) {
    const ballot *most = NULL, *as_many = NULL;
    for (int i = 0; i < n; i++) {
        if (!most || ballots[i].n_votes > most->n_votes)
            most = &ballots[i], as_many = NULL;
        else if (ballots[i].n_votes == most->n_votes)
            as_many = &ballots[i];
    }
    if (as_many && 2 * most->n_votes < n_tensors) most = NULL;
    if (as_many && most)
        return dt_fail(DT_E_CKPT,
                       "%s: this model's tensors are there more than once, for example under '%s' "
                       "and '%s': model.init_prefix chooses",
                       where, most->prefix, as_many->prefix);
    *prefix = dt_xstrdup(most ? most->prefix : "");
    return DT_OK;
}

dt_status dt_weight_map_make(dt_weight_map *map, const dt_weights *w, const char *where, const char *prefix,
                             const dt_ckpt_tensor *tensors, int n, const dt_graph *g) {
    int n_names = n;
    known *list = sort_names(tensors, g, &n_names);
    ballot *ballots = NULL;
    int n_ballots = 0, n_file = dt_weights_count(w);
    dt_status st = DT_OK;
    *map = (dt_weight_map){0};
    if (prefix) {
        size_t n_bytes = strlen(prefix);
        bool whole = n_bytes == 0 || prefix[n_bytes - 1] == '.';
        map->prefix = dt_xprintf("%s%s", prefix, whole ? "" : ".");
    } else {
        vote_all(&ballots, &n_ballots, w, list, n_names);
        st = elect(&map->prefix, ballots, n_ballots, n, where);
    }
    map->tensor = dt_xcalloc((size_t)n_file + 1, sizeof *map->tensor);
    map->file = dt_xcalloc((size_t)n + 1, sizeof *map->file);
    for (int i = 0; i < n; i++) map->file[i] = -1;
    for (int i = 0; st == DT_OK && i < n_file; i++) {
        const char *name = dt_weights_name(w, i);
        size_t skip = strlen(map->prefix);
        map->tensor[i] =
            strncmp(name, map->prefix, skip) == 0 ? weight_names_tensor_of(list, n_names, name + skip) : -1;
        if (map->tensor[i] >= 0) map->file[map->tensor[i]] = i;
    }
    for (int i = 0; i < n_ballots; i++) free(ballots[i].prefix);
    free(ballots);
    for (int i = 0; i < n_names; i++) free(list[i].name);
    free(list);
    return st;
}

void dt_weight_map_fini(dt_weight_map *map) {
    free(map->prefix);
    free(map->tensor);
    free(map->file);
}
