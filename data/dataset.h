// dataset.h: what the files right in data/ share while a data set is opened: the config's names for columns and
// records, and the split (split_config.c).
#ifndef DT_DATA_DATASET_H
#define DT_DATA_DATASET_H

#include "data/loader/data_parts.h"

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
void dt_split_tell_copies(const dt_data *d);
// What data.split.file reads: the part of each record; of each sample, where a record is in samples of several parts.
dt_status dt_split_write(const dt_dataset *base, const char *path);

#endif
