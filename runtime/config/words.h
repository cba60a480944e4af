// words.h: the words of keys, each list from its .def file.
#ifndef DT_CONFIG_WORDS_H
#define DT_CONFIG_WORDS_H

// ---- words --------------------------------------------------------------------------------------------------------

// The words that config keys take. Each list is written once: the ranges of config.def, the C enums,
// `dtrain keys` and the messages about a wrong word all come from it.
//
// A list that grows is a .def file of lines WORD(id, help) or WORD(id, help, keys), such as optimizers.def. Its enum is
// below. `keys` are keys beside
// the word's own key that not all words read; given for another word they are an error. The words are in the order of the
// enum's constants.

// Fixed lists: W(PREFIX, word) for each word.
#define DT_REPRODUCIBLE_WORDS(W)   W(REPRODUCIBLE, elastic) W(REPRODUCIBLE, resume) W(REPRODUCIBLE, off)
#define DT_RESUME_WORDS(W)         W(RESUME, auto) W(RESUME, never) W(RESUME, force)
#define DT_DEVICE_WORDS(W)         W(DEVICE, auto) W(DEVICE, cpu) W(DEVICE, cuda)
#define DT_WINOGRAD_WORDS(W)       W(WINOGRAD, auto) W(WINOGRAD, off)
#define DT_PRECISION_WORDS(W)      W(PRECISION, auto) W(PRECISION, fp32) W(PRECISION, bf16) W(PRECISION, fp16)
#define DT_GRADIENT_DTYPE_WORDS(W) W(GRADIENT_DTYPE, fp32) W(GRADIENT_DTYPE, bf16)
#define DT_ON_ERROR_WORDS(W)       W(ON_ERROR, fail) W(ON_ERROR, skip) W(ON_ERROR, quarantine)
#define DT_PAD_WORDS(W)            W(PAD, zero) W(PAD, wrap) W(PAD, reflect)
#define DT_FEATURE_WORDS(W)                                                                                            \
    W(FEATURE, waveform)                                                                                               \
    W(FEATURE, spectrogram)                                                                                            \
    W(FEATURE, logspectrogram) W(FEATURE, mel) W(FEATURE, logmel) W(FEATURE, mfcc)
#define DT_EDGES_WORDS(W)       W(EDGES, reflect) W(EDGES, zero)
#define DT_MEL_SCALE_WORDS(W)   W(MEL_SCALE, htk) W(MEL_SCALE, slaney)
#define DT_MEL_NORM_WORDS(W)    W(MEL_NORM, none) W(MEL_NORM, slaney)
#define DT_CLASS_INPUT_WORDS(W) W(CLASS_INPUT, none) W(CLASS_INPUT, onehot) W(CLASS_INPUT, embedding)
#define DT_LOG_WORDS(W)         W(LOG, db) W(LOG, ln)
#define DT_PIXEL_WORDS(W)       W(PIXEL, u8) W(PIXEL, f32)
#define DT_LAYOUT_WORDS(W)      W(LAYOUT, hwc) W(LAYOUT, chw)
#define DT_STRETCH_WORDS(W)     W(STRETCH, none) W(STRETCH, linear) W(STRETCH, asinh)
#define DT_RANGE_WORDS(W)       W(RANGE, zscale) W(RANGE, minmax)
#define DT_FIT_WORDS(W)         W(FIT, stretch) W(FIT, crop) W(FIT, pad)
#define DT_BY_WORDS(W)          W(BY, sample) W(BY, record)
#define DT_SHUFFLE_WORDS(W)     W(SHUFFLE, global) W(SHUFFLE, block) W(SHUFFLE, none)
#define DT_AUGMENT_ON_WORDS(W)  W(AUGMENT_ON, auto) W(AUGMENT_ON, host)
#define DT_CACHE_WORDS(W)       W(CACHE, none) W(CACHE, auto) W(CACHE, ram) W(CACHE, shared) W(CACHE, disk)
#define DT_CACHE_FORM_WORDS(W)  W(CACHE_FORM, encoded) W(CACHE_FORM, decoded)
#define DT_FUSION_WORDS(W)      W(FUSION, concat) W(FUSION, cross_attention) W(FUSION, gated)
#define DT_STEM_WORDS(W)        W(STEM, imagenet) W(STEM, small) W(STEM, deep)
#define DT_PAD_TYPE_WORDS(W)    W(PAD_TYPE, symmetric) W(PAD_TYPE, same)
#define DT_POOL_WORDS(W)        W(POOL, cls) W(POOL, mean)
#define DT_SHARD_WORDS(W)       W(SHARD, none) W(SHARD, optimizer)
#define DT_SIZE_WORDS(W)                                                                                               \
    W(SIZE, auto)                                                                                                      \
    W(SIZE, ti) W(SIZE, s) W(SIZE, b) W(SIZE, l) W(SIZE, b0) W(SIZE, b1) W(SIZE, b2)
#define DT_GELU_WORDS(W)   W(GELU, exact) W(GELU, tanh)
#define DT_ANGLES_WORDS(W) W(ANGLES, degrees) W(ANGLES, radians)
#define DT_DEPTH_WORDS(W)  W(DEPTH, 10) W(DEPTH, 18) W(DEPTH, 34) W(DEPTH, 50) W(DEPTH, 101) W(DEPTH, 152)

// A word of a list that grows: the place in its list, which is a constant of the list's enum.
typedef int dt_word;

#define DT_WORD_CONSTANT(prefix, word) DT_##prefix##_##word,
#define DT_WORD_TEXT(prefix, word)     "|" #word
#define DT_WORD_QUOTED(prefix, word)   #word,
// "a|b|c", as config.def wants it: a constant expression
#define DT_WORDS(LIST) (&(LIST(DT_WORD_TEXT))[1])
// the constant of a word: its place in "a|b|c", from 0; -1: it is not there
int dt_word_index(const char *words, const char *word);
// the word of a constant
#define DT_WORD_OF(LIST, constant) (((const char *const[]){LIST(DT_WORD_QUOTED)})[constant])

typedef enum dt_reproducible { DT_REPRODUCIBLE_WORDS(DT_WORD_CONSTANT) } dt_reproducible;
typedef enum dt_resume { DT_RESUME_WORDS(DT_WORD_CONSTANT) } dt_resume;
typedef enum dt_device_kind { DT_DEVICE_WORDS(DT_WORD_CONSTANT) } dt_device_kind;
typedef enum dt_angles { DT_ANGLES_WORDS(DT_WORD_CONSTANT) } dt_angles;
typedef enum dt_winograd { DT_WINOGRAD_WORDS(DT_WORD_CONSTANT) } dt_winograd;
typedef enum dt_precision { DT_PRECISION_WORDS(DT_WORD_CONSTANT) } dt_precision;
typedef enum dt_gradient_dtype { DT_GRADIENT_DTYPE_WORDS(DT_WORD_CONSTANT) } dt_gradient_dtype;
typedef enum dt_on_error { DT_ON_ERROR_WORDS(DT_WORD_CONSTANT) } dt_on_error;
typedef enum dt_audio_pad { DT_PAD_WORDS(DT_WORD_CONSTANT) } dt_audio_pad;
typedef enum dt_feature_kind { DT_FEATURE_WORDS(DT_WORD_CONSTANT) } dt_feature_kind;
typedef enum dt_edges { DT_EDGES_WORDS(DT_WORD_CONSTANT) } dt_edges;
typedef enum dt_mel_scale { DT_MEL_SCALE_WORDS(DT_WORD_CONSTANT) } dt_mel_scale;
typedef enum dt_mel_norm { DT_MEL_NORM_WORDS(DT_WORD_CONSTANT) } dt_mel_norm;
typedef enum dt_class_input { DT_CLASS_INPUT_WORDS(DT_WORD_CONSTANT) } dt_class_input;
typedef enum dt_log_word { DT_LOG_WORDS(DT_WORD_CONSTANT) } dt_log_word;
typedef enum dt_pixel_word { DT_PIXEL_WORDS(DT_WORD_CONSTANT) } dt_pixel_word;
typedef enum dt_layout_word { DT_LAYOUT_WORDS(DT_WORD_CONSTANT) } dt_layout_word;
typedef enum dt_stretch { DT_STRETCH_WORDS(DT_WORD_CONSTANT) } dt_stretch;
typedef enum dt_fit_kind { DT_FIT_WORDS(DT_WORD_CONSTANT) } dt_fit_kind;
typedef enum dt_shuffle { DT_SHUFFLE_WORDS(DT_WORD_CONSTANT) } dt_shuffle;
typedef enum dt_augment_on { DT_AUGMENT_ON_WORDS(DT_WORD_CONSTANT) } dt_augment_on;
typedef enum dt_cache_kind { DT_CACHE_WORDS(DT_WORD_CONSTANT) } dt_cache_kind;
typedef enum dt_cache_form { DT_CACHE_FORM_WORDS(DT_WORD_CONSTANT) } dt_cache_form;
typedef enum dt_fusion_word { DT_FUSION_WORDS(DT_WORD_CONSTANT) } dt_fusion_word;
typedef enum dt_gelu_word { DT_GELU_WORDS(DT_WORD_CONSTANT) } dt_gelu_word;
typedef enum dt_stem_word { DT_STEM_WORDS(DT_WORD_CONSTANT) } dt_stem_word;
typedef enum dt_pool_word { DT_POOL_WORDS(DT_WORD_CONSTANT) } dt_pool_word;
typedef enum dt_pad_type_word { DT_PAD_TYPE_WORDS(DT_WORD_CONSTANT) } dt_pad_type_word;
typedef enum dt_shard_word { DT_SHARD_WORDS(DT_WORD_CONSTANT) } dt_shard_word;
typedef enum dt_size_word { DT_SIZE_WORDS(DT_WORD_CONSTANT) } dt_size_word;
typedef enum dt_depth_word { DT_DEPTH_WORDS(DT_WORD_CONSTANT) } dt_depth_word;

// ---- field words --------------------------------------------------------------------------------------------------

// The words of data.fields.*.kind, as constants.

#define WORD(id, ...) DT_FIELD_##id,
typedef enum dt_field_kind {
#include "config/field_kinds.def"
    DT_N_FIELD_KINDS
} dt_field_kind;
#undef WORD

// ---- loss words ---------------------------------------------------------------------------------------------------

// The words of train.loss, as constants.

#define WORD(id, ...) DT_LOSS_##id,
typedef enum dt_loss_id {
#include "config/losses.def"
    DT_N_LOSSES
} dt_loss_id;
#undef WORD

// ---- metric words -------------------------------------------------------------------------------------------------

// The words of eval.metrics, as constants.

#define WORD(id, ...) DT_METRIC_##id,
typedef enum dt_metric_id {
#include "config/metrics.def"
    DT_N_METRICS
} dt_metric_id;
#undef WORD

// ---- model words --------------------------------------------------------------------------------------------------

// The words of model.name, as constants.

#define WORD(id, ...) DT_MODEL_##id,
typedef enum dt_model_id {
#include "config/models.def"
    DT_N_MODELS
} dt_model_id;
#undef WORD

// ---- optimizer words ----------------------------------------------------------------------------------------------

// The words of train.optimizer.name, as constants.

#define WORD(id, ...) DT_OPTIMIZER_##id,
typedef enum dt_optimizer_id {
#include "config/optimizers.def"
    DT_N_OPTIMIZERS
} dt_optimizer_id;
#undef WORD

// ---- schedule words -----------------------------------------------------------------------------------------------

// The words of train.schedule.name, as constants.

#define WORD(id, ...) DT_SCHEDULE_##id,
typedef enum dt_schedule_id {
#include "config/schedules.def"
    DT_N_SCHEDULES
} dt_schedule_id;
#undef WORD

// ---- sink words ---------------------------------------------------------------------------------------------------

// The words of metrics.sinks, as constants.

#define WORD(id, ...) DT_SINK_##id,
typedef enum dt_sink_id {
#include "config/sinks.def"
    DT_N_SINKS
} dt_sink_id;
#undef WORD

// ---- split names --------------------------------------------------------------------------------------------------

// The parts of a data set, and their names in configs, records and files.

// The evaluation of the test part with the best weights; other evaluations have the names of their parts.
#define DT_TEST_BEST "test_best"

typedef enum dt_split { DT_SPLIT_TRAIN, DT_SPLIT_VAL, DT_SPLIT_TEST } dt_split;

static inline const char *dt_split_name(int split) {
    return split == DT_SPLIT_TRAIN ? "train" : split == DT_SPLIT_VAL ? "val" : "test";
}

#endif
