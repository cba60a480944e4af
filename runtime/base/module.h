// module.h: finds the program's modules, dtrain_mpi.so and dtrain_cuda.so. They are loaded only when needed,
// so that the program itself depends on no library that a machine may lack.
#ifndef DT_BASE_MODULE_H
#define DT_BASE_MODULE_H

#include "base/status.h"

#include <stddef.h>

// Folder of the executable, without a trailing slash.
dt_status dt_module_exe_dir(char *dir, size_t cap);
// Path of the module, beside the executable or in ../lib/dtrain; empty if it is in neither.
dt_status dt_module_find(const char *name, char *path, size_t cap);

#endif
