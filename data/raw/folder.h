// folder.h: a folder of raw files as rows of a catalog.
#ifndef DT_DATA_FOLDER_H
#define DT_DATA_FOLDER_H

#include "data/catalog/catalog.h"

// Appends the records of the folder. DT_E_DATA / DT_E_USAGE.
dt_status dt_folder_load(dt_catalog *c, const char *path);

#endif
