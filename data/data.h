// data.h: from a config to samples. Files come in through a source (LMDB, WebDataset, folder), become
// records in a catalog; a view makes samples of records; split, shuffle and cursor are pure functions
// on the view; the loader decodes and augments into a ring of batches (batch/batch_source.h).
#ifndef DT_DATA_DATA_H
#define DT_DATA_DATA_H

#include "batch/batch_source.h"
#include "config/config.h"
#include "data/loader/data_parts.h"
#include "data/source/source.h"

// Opens data.path with view, split and fields of the config. The ring lies in `memory`
// (copied; NULL: plain memory). rank_workers: loader threads when data.workers is auto. skip_log: file that
// lists skipped records (data.on_error: skip), or NULL.
dt_status dt_data_open(dt_dataset **out, const dt_config *c, const dt_batch_memory *memory, int rank_workers,
                       const char *skip_log);
// dt_data_open for a run that has numbered its classes: `names` is JSON as in run/run_state.h, or NULL. A class
// that the run does not know is an error; of those that the set lacks a line is printed. uses: by field, or NULL.
dt_status dt_data_open_as(dt_dataset **out, const dt_config *c, const dt_batch_memory *memory, int rank_workers,
                          const char *skip_log, const char *names, const dt_field_use *uses);

// Item i of data.path, which is one or a list; borrowed from the config. false: there are fewer.
bool dt_data_item(const dt_config *c, size_t i, dt_reader_item *out);
// Whether any file of data.path is there. If none is, the data may be made later.
bool dt_data_exists(const dt_config *c);

// Says how many processes of this host open the dataset and share its cache. Before a split is opened.
void dt_data_set_processes(dt_dataset *d, int n);

// The order of training, without loading anything: sample i (0 <= i < n) of an epoch, as a view index; and the keys
// (borrowed) of the records that a sample is made of; returns how many.
uint32_t dt_data_sample_at(const dt_dataset *d, uint64_t epoch, uint64_t i);
int dt_data_records_of(const dt_dataset *d, uint32_t sample, const char *key[DT_MAX_WIDTH]);

// The fields from the config alone, for when there is no data set. At most DT_MAX_FIELDS; *n: how many. classes: as
// above, or NULL; names of classes are not given.
dt_status dt_data_describe_fields(const dt_config *c, const char *classes, dt_field_info *out, int *n);

// ---- dataset ------------------------------------------------------------------------------------------------------

// What the files right in data/ share while a data set is opened: the config's names for columns and
// records, and the split (split_config.c).

// The column that `key` of the config calls `name`; the name of a class field also stands for its column.
// DT_E_USAGE with the key's place lists the columns.
dt_status dt_data_find_column(const dt_data *d, const dt_config *c, const char *key, const char *name, int *out);
// keep[r]: whether the expression that is the value of `key` is true of record r; *n: how many. DT_E_USAGE with the
// key's place; also if it is true of none.
dt_status dt_data_select(const dt_data *d, const dt_config *c, const char *key, const char *where, bool *keep,
                         uint32_t *n);

// data.split.file: sets d->listed. Before data.where leaves records out, so that the file may list them.
dt_status dt_split_read_file(dt_data *d, const dt_config *c);
// data.split: makes d->splits of d->view.
dt_status dt_split_open(dt_data *d, const dt_config *c);
// Warns of records of val and test that repeat records of training, by column duplicate_of and by stored hashes.
void dt_split_warn_copies(const dt_data *d);
// What data.split.file reads: the part of each record; of each sample, where a record is in samples of several parts.
dt_status dt_split_write(const dt_dataset *base, const char *path);

#endif
