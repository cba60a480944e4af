// module.h: where the program's modules are (dtrain_mpi.so, dtrain_cuda.so): shared objects that are loaded
// only when they are needed, so that the program itself needs no library that a machine may lack.
#ifndef DT_BASE_MODULE_H
#define DT_BASE_MODULE_H

#include "base/status.h"

#include <stddef.h>

// Folder of the executable, without the last slash.
dt_status dt_module_exe_dir(char *dir, size_t cap);
// The module's path in *path (empty when it is nowhere): beside the executable or in ../lib/dtrain.
dt_status dt_module_find(const char *name, char *path, size_t cap);

#endif
