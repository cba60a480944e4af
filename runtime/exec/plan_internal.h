// plan_internal.h: what a plan is made of; for plan.c, memory.c and exec.c only.
#ifndef DT_EXEC_PLAN_INTERNAL_H
#define DT_EXEC_PLAN_INTERNAL_H

#include "exec/plan.h"

// Where a tensor lies at run time. `offset` is bytes into the flat buffer, elements into params' flat buffers.
typedef enum dt_place { DT_P_NONE, DT_P_FLAT, DT_P_MASTER, DT_P_BUFFER, DT_P_GRAD, DT_P_INPUT, DT_P_CONST } dt_place;
typedef struct dt_ref {
    dt_place place;
    int buffer;       // FLAT: index into plan->buffers; CONST on a device: index into plan->constant
    int64_t offset;   // MASTER, BUFFER, GRAD: elements; INPUT: index into plan->inputs
    const void *data; // CONST: the value in the host's memory
} dt_ref;

// A part of the activation buffer with a lifetime in instructions.
typedef struct dt_plan_buffer {
    size_t n_bytes, offset;
    int first, last; // instructions, inclusive
    int read_until;  // the last node that reads any of the values that share the buffer
} dt_plan_buffer;

// An instruction runs one node's kernel, or, with kernel NULL, one reorder of in[0] to out[0].
typedef struct dt_instruction {
    const dt_kernel *kernel;
    dt_kernel_instance instance;
    const char *label; // "conv2d.bwd iris.0"
    dt_ref *in, *out;
    int n_in, n_out;
    int pack_ids[DT_MAX_PACKS];   // < 0: packed in front of the kernel, at pack_at
    size_t pack_at[DT_MAX_PACKS]; // bytes into scratch
    uint64_t sums;                // outputs that are sums over micro-batches (GRAD, STAT)
    uint64_t adds;                // those of `sums` that an earlier instruction of this plan has written
    int *grads;                   // indices into graph->grads that are finished after this instruction
    int n_grads;
    dt_value value;     // reorder: which value
    dt_dtype type;      // reorder: element type
    dt_layout from, to; // reorder
} dt_instruction;

// One form in which a value exists: its layout and its place.
typedef struct dt_form {
    dt_layout layout;
    dt_ref ref;
    int next; // further forms of the same value, or -1
} dt_form;

struct dt_plan {
    const dt_graph *graph;
    dt_params *params;
    dt_backend *backend;
    dt_plan_opts opts;
    dt_arena arena;
    dt_instruction *instructions;
    int n_instructions, cap_instructions;
    dt_plan_buffer *buffers;
    int n_buffers, cap_buffers;
    dt_form *forms;
    int n_forms, cap_forms;
    int *form_of;   // by value: first form (the one its producer made), or -1
    int *last_read; // by value: index of the last node that reads it, n_nodes for outputs, or -1
    dt_value *inputs;
    int n_inputs;
    dt_flat_buffer constants; // device: copies of the graph's constants
    void **constant;          // by value: its copy in `constants`
    size_t flat_bytes;        // activations, then scratch
    size_t activation_bytes, scratch_bytes, unshared_bytes;
    int n_reorders, n_inplace;
};

// memory.c: gives every buffer an offset; returns the bytes that all need together.
size_t dt_memory_assign(dt_plan_buffer *buffers, int n);

#endif
