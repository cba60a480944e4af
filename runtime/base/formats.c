// formats.c: see formats.h.
#include "base/formats.h"

#include <inttypes.h>

const char dt_version[] = DTRAIN_VERSION;

dt_status dt_format_check(const char *where, int64_t version, int newest, const char *writer) {
    if (version <= newest) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%s: written by a newer dtrain%s%.40s (format %" PRId64 "; this build, %s, reads 1 to %d): use that "
                   "one, or a newer one",
                   where, writer ? ", " : "", writer ? writer : "", version, dt_version, newest);
}
