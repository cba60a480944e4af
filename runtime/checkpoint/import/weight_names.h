// weight_names.h: which tensor of a file is which of the model's: a prefix that all names have, such as "module." or
// "state_dict.backbone.", and the names that other libraries give to the same tensors.
#ifndef DT_CKPT_WEIGHT_NAMES_H
#define DT_CKPT_WEIGHT_NAMES_H

#include "checkpoint/ckpt.h"
#include "graph/ir.h"
#include "weights_file.h"

typedef struct dt_weight_map {
    char *prefix; // heap; "" if there is none
    int *tensor;  // by tensor of the file: index of the model's, -1: none; heap
    int *file;    // by tensor of the model: index in the file, -1: none; heap
} dt_weight_map;

// prefix NULL: the one under which most of the model's tensors are found. Where several have as many it is DT_E_CKPT,
// which names them. `where` stands for the file in messages. g: whose tensors they are, for timm's names; may be NULL.
dt_status dt_weight_map_make(dt_weight_map *map, const dt_weights *w, const char *where, const char *prefix,
                             const dt_ckpt_tensor *tensors, int n, const dt_graph *g);
void dt_weight_map_fini(dt_weight_map *map);
// The name of a file's tensor without the prefix, and torchvision's downloads renamed. NULL: it lacks the prefix.
const char *dt_weight_map_name(const dt_weight_map *map, const char *name, char *buf, size_t cap);

#endif
