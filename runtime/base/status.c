// status.c: the message of the last failure, one buffer a thread.
//
// The buffer is fixed, so that reporting "out of memory" needs no memory. Text that is too long is cut at
// the end (messages begin with the place). The current message may be an argument of dt_fail, so text is
// formatted elsewhere and then copied.
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[DT_ERROR_BYTES];

dt_status dt_fail(dt_status code, const char *fmt, ...) {
    char text[DT_ERROR_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(message, text, sizeof message);
    return code;
}

dt_status dt_fail_context(dt_status code, const char *fmt, ...) {
    char text[DT_ERROR_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    strncat(text, ": ", sizeof text - 1 - strlen(text));
    strncat(text, message, sizeof text - 1 - strlen(text));
    memcpy(message, text, sizeof message);
    return code;
}

const char *dt_error_message(void) {
    return message;
}
void dt_error_clear(void) {
    message[0] = '\0';
}

dt_error_kept dt_error_keep(void) {
    dt_error_kept kept;
    memcpy(kept.message, message, sizeof message);
    return kept;
}
void dt_error_restore(const dt_error_kept *kept) {
    memcpy(message, kept->message, sizeof message);
}
