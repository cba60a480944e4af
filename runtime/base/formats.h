// formats.h: versions of the files that dtrain writes and reads again; docs/reference/formats.md specifies them.
//
// A build reads versions 1 to its own and refuses newer ones with one line and exit code 2, because the remedy is another
// dtrain. A member that may be ignored is added under the same version.
#ifndef DT_BASE_FORMATS_H
#define DT_BASE_FORMATS_H

#include "base/core.h"

enum {
    DT_FORMAT_INDEX = 1,
    DT_FORMAT_MANIFEST = 1,
    DT_FORMAT_STATE = 1,
    DT_FORMAT_INT8 = 1,
    DT_FORMAT_CALIBRATION = 1,
    DT_FORMAT_METRICS = 1,
    DT_FORMAT_RESULT = 1,
    DT_FORMAT_EVALUATION = 1
};

extern const char dt_version[]; // of dtrain: "1.0.0", the VERSION of CMake's project

// version: of the file `where`; newest: DT_FORMAT_x. writer: the version of dtrain that the file names, or NULL.
// DT_E_USAGE: newer than that.
dt_status dt_format_check(const char *where, int64_t version, int newest, const char *writer);

#endif
