// status.h: how every function of dtrain reports failure.
//
// A function that can fail returns dt_status, whose value is also the program's exit code. dt_fail()
// writes the message once, where it happens. Callers forward the status with DT_TRY and may add their place
// with dt_fail_context(). The message lives in thread-local storage until the next dt_fail() on that
// thread. A worker thread that fails passes on a copy of dt_error_message(), and the receiver calls
// dt_fail() with it.
//
// A message says what happened, where (file:line of the YAML, record, rank), and what to do.
// Programming errors assert; they are not statuses.
#ifndef DT_BASE_STATUS_H
#define DT_BASE_STATUS_H

typedef enum dt_status {
    DT_OK = 0,
    DT_E_USAGE = 2,      // command line or config
    DT_E_DATA = 3,       // a dataset or record cannot be read
    DT_E_CKPT = 4,       // no checkpoint loads
    DT_E_STORAGE = 5,    // cannot write (run directory, disk full)
    DT_E_NUMERIC = 6,    // NaN or infinity
    DT_E_INTERNAL = 70,  // dtrain or a library broke
    DT_E_PREEMPTED = 75, // stopped by a signal after saving: run again
    DT_E_PEER = 240      // a rank is lost or hangs: run again
} dt_status;

// Records the message (printf format, no newline) for this thread and returns `code`.
dt_status dt_fail(dt_status code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Puts "context: " before the current message and returns `code`.
dt_status dt_fail_context(dt_status code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// The message of the last failure on this thread; "" when there was none. Borrowed.
const char *dt_error_message(void);
void dt_error_clear(void);

// Keeps the first message across clean-up that may fail too. Takes no heap memory.
enum { DT_ERROR_BYTES = 2048 };
typedef struct dt_error_kept {
    char message[DT_ERROR_BYTES];
} dt_error_kept;
dt_error_kept dt_error_keep(void);
void dt_error_restore(const dt_error_kept *kept);

#define DT_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        dt_status dt_try_ = (expr);                                                                                    \
        if (dt_try_ != DT_OK) return dt_try_;                                                                          \
    } while (0)

// For functions with one exit: stores the error in `st` and jumps.
#define DT_TRY_GOTO(st, expr, label)                                                                                   \
    do {                                                                                                               \
        (st) = (expr);                                                                                                 \
        if ((st) != DT_OK) goto label;                                                                                 \
    } while (0)

#endif
